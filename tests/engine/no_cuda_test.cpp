#include <gtest/gtest.h>

#include "nimble/backend/executable.h"

namespace nimble {
namespace {

TEST(ABuildWithoutCuda, HasNoneAvailable) { EXPECT_FALSE(cuda_available()); }

TEST(ABuildWithoutCuda, SaysWhyThereIsNoneAndWhatToDo) {
  try {
    cuda_backend();
    FAIL() << "there is a CUDA backend";
  } catch (const Error& error) {
    const std::string why = error.what();
    EXPECT_NE(why.find("has no CUDA backend"), std::string::npos) << why;
    EXPECT_NE(why.find("Build it again where nvcc is on the PATH"), std::string::npos) << why;
    EXPECT_NE(why.find("the CPU"), std::string::npos) << why;
  }
}

}  // namespace
}  // namespace nimble
