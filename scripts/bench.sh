#!/usr/bin/env bash
# bench.sh NAME [ARGUMENT...]: builds, then measures: planner (its own program), cpu, cuda, train or all (the suite of
# nimble.bench, which gets further arguments). Results lie in build/benchmarks.
source "$(dirname "$0")/common.sh"

name=$1
shift
scripts/build.sh build
python=$(project_python)
export PYTHONPATH=$PWD/build/python

suite() { "$python" -m nimble bench --out build/benchmarks "$@"; }

case $name in
  planner) "$python" benchmarks/planner/run.py "$@" ;;
  cpu) suite --name cpu --device cpu --workloads cpu "$@" ;;
  cuda) suite --name cuda --device cuda --workloads inference --dtype fp32 fp16 "$@" ;;
  train) suite --name train --device cuda --workloads training "$@" ;;
  all)
    suite --name results --device cuda --workloads inference training --exhibits --systems default ablations "$@"
    suite --name half --device cuda --workloads inference --systems no-compilers --dtype fp16 bf16 "$@"
    suite --name batches --device cuda --workloads resnet50 googlenet nasnet_a_mobile --systems no-compilers \
      --batch 1 2 4 8 16 32 64 "$@"
    ;;
  *) die "there is no benchmark $name: planner, cpu, cuda, train, all" ;;
esac
