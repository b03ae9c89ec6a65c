#!/usr/bin/env bash
# Builds the libFuzzer harnesses of tests/fuzz with clang and runs each for FUZZ_SECONDS, starting from the examples.
# What they find is kept in build-fuzz/corpus, so that the next run goes on from there.
source "$(dirname "$0")/common.sh"

scripts/packages.sh clang++
CXX=clang++ scripts/build.sh build-fuzz -DNIMBLE_FUZZ=ON -DNIMBLE_TORCH=OFF -DNIMBLE_PYTHON=OFF -DNIMBLE_TESTS=OFF \
  -DNIMBLE_BENCHMARKS=OFF

shopt -s nullglob
harnesses=(build-fuzz/tests/fuzz/fuzz_*)
status=0
ran=0
for harness in "${harnesses[@]}"; do
  [[ -f $harness && -x $harness ]] || continue
  ran=$((ran + 1))
  name=$(basename "$harness")
  mkdir -p "build-fuzz/corpus/$name" "build-fuzz/crashes"
  say "$name for ${FUZZ_SECONDS:-300} seconds"
  "$harness" -max_total_time="${FUZZ_SECONDS:-300}" -artifact_prefix="build-fuzz/crashes/$name-" -print_final_stats=1 \
    "build-fuzz/corpus/$name" examples/graphs || status=1
done
((ran)) || die "no harness fuzz_* in build-fuzz/tests/fuzz"
exit "$status"
