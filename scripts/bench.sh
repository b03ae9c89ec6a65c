#!/usr/bin/env bash
# bench.sh NAME: builds, then runs benchmarks/NAME: its run.py, else the program nimble_bench_NAME.
source "$(dirname "$0")/common.sh"

name=$1
[[ -d benchmarks/$name ]] || die "there is no benchmarks/$name yet"
scripts/build.sh build
if [[ -f benchmarks/$name/run.py ]]; then
  PYTHONPATH=$PWD/build/python:$PWD "$(project_python)" "benchmarks/$name/run.py"
else
  "build/benchmarks/$name/nimble_bench_$name"
fi
