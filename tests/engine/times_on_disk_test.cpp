#include "nimble/engine/times_on_disk.h"

#include <gtest/gtest.h>

#include <regex>

#include "nimble/kernels/kernel_source.h"
#include "tests/core/temporary_folder.h"

namespace nimble {
namespace {

TEST(TimesOnDisk, AreFoundAgainByAnotherProcess) {
  const testing::TemporaryFolder folder;
  const kernels::DiskCache cache(folder.path() / "cache");
  times_in(cache, "gpu\n", "0.1.0 abc")->add("relu", 17);
  EXPECT_EQ(times_in(cache, "gpu\n", "0.1.0 abc")->find("relu"), 17);
  EXPECT_EQ(times_in(cache, "gpu\n", "0.1.0 abc")->find("exp"), std::nullopt);
}

TEST(TimesOnDisk, AreNotThoseOfOtherKernelsOrMachines) {
  const testing::TemporaryFolder folder;
  const kernels::DiskCache cache(folder.path() / "cache");
  times_in(cache, "gpu\n", "0.1.0 abc")->add("relu", 17);
  EXPECT_EQ(times_in(cache, "gpu\n", "0.1.1 abc")->find("relu"), std::nullopt);
  EXPECT_EQ(times_in(cache, "gpu\n", "0.1.0 abd")->find("relu"), std::nullopt);
  EXPECT_EQ(times_in(cache, "another gpu\n", "0.1.0 abc")->find("relu"), std::nullopt);
}

TEST(TimesOnDisk, KernelsAreToldApartByVersionAndSources) {
  const std::string fingerprint(kernels::fingerprint());
  EXPECT_TRUE(std::regex_match(fingerprint, std::regex(R"(\d+\.\d+\.\d+ [0-9a-f]{64})"))) << fingerprint;
}

}  // namespace
}  // namespace nimble
