#pragma once

#include <gtest/gtest.h>
#include <torch/cuda.h>

namespace nimble::testing {

// The fixture of every test that needs a GPU, in a program with the CTest label `gpu`. `make test` counts the
// tests that were skipped for this reason by its exact words.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
  }
};

}  // namespace nimble::testing
