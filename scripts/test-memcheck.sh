#!/usr/bin/env bash
# A small network on the GPU, on one stream and on many, under compute-sanitizer: no access outside of an allocation, no
# read of device memory that nothing wrote.
source "$(dirname "$0")/common.sh"

command -v compute-sanitizer >/dev/null || die "compute-sanitizer was not found: it comes with the CUDA toolkit"
scripts/build.sh build
for tool in memcheck initcheck; do
  compute-sanitizer --tool "$tool" --error-exitcode 1 build/tests/conformance/nimble_conformance_tests \
    --gtest_filter='CudaGraph/Conformance.EverythingAllocatedInABranchyNetworkIsPlanned/*:CudaGraph/Conformance.AliasedResults*'
done
