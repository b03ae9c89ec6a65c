#!/usr/bin/env bash
# test-sanitized.sh asan|tsan: the C++ tests in a build of their own with the sanitizer in it.
source "$(dirname "$0")/common.sh"

options=(-DCMAKE_BUILD_TYPE=RelWithDebInfo -DNIMBLE_PYTHON=OFF -DNIMBLE_BENCHMARKS=OFF)
launcher=()
case ${1:-} in
  asan)
    options+=('-DNIMBLE_SANITIZE=address,undefined')
    # CUDA maps memory where ASan keeps a gap.
    export ASAN_OPTIONS=protect_shadow_gap=0:${ASAN_OPTIONS:-}
    ;;
  tsan)
    # libtorch is not instrumented, so whatever needs it is left out.
    options+=(-DNIMBLE_SANITIZE=thread -DNIMBLE_TORCH=OFF)
    export TSAN_OPTIONS=halt_on_error=1:${TSAN_OPTIONS:-}
    # Older ThreadSanitizers abort where the kernel randomises addresses by more bits than they expect.
    if setarch --addr-no-randomize true 2>/dev/null; then launcher=(setarch --addr-no-randomize); fi
    ;;
  *) die "usage: scripts/test-sanitized.sh asan|tsan" ;;
esac

directory=$PWD/build-$1
"${launcher[@]}" scripts/build.sh "$directory" "${options[@]}"
results=$directory/test-results
rm -rf "$results"
mkdir -p "$results"

status=0
"${launcher[@]}" ctest --test-dir "$directory" --output-on-failure --parallel "$(nproc)" --label-exclude full \
  --output-junit "$results/ctest.xml" || status=1
"$PYTHON" scripts/summary.py "$results" ctest || status=1
exit "$status"
