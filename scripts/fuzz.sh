#!/usr/bin/env bash
# Builds the libFuzzer harnesses of tests/fuzz with clang and runs each for FUZZ_SECONDS, from its corpus there. What
# they find is kept in build-fuzz/corpus, so that the next run goes on from there; crashes lie in build-fuzz/crashes.
source "$(dirname "$0")/common.sh"

scripts/packages.sh clang++
CXX=clang++ scripts/build.sh build-fuzz -DNIMBLE_FUZZ=ON -DNIMBLE_TORCH=OFF -DNIMBLE_TESTS=OFF -DNIMBLE_BENCHMARKS=OFF

seconds=${FUZZ_SECONDS:-300}
mkdir -p build-fuzz/crashes
status=0
for source in tests/fuzz/fuzz_*_reader.cpp; do
  name=$(basename "$source" .cpp)
  format=${name#fuzz_}
  seeds=tests/fuzz/${format%_reader}_corpus
  found=build-fuzz/corpus/$name
  mkdir -p "$found"
  say "$name for $seconds seconds"
  "build-fuzz/tests/fuzz/$name" -max_total_time="$seconds" -dict=tests/fuzz/formats.dict -print_final_stats=1 \
    -artifact_prefix="build-fuzz/crashes/$name-" "$found" "$seeds" || status=1
done
exit "$status"
