#include "nimble/core/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "nimble/core/error.h"
#include "temporary_folder.h"

namespace nimble::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Throws;
using ::testing::ThrowsMessage;

TEST(Files, AreReadAsWritten) {
  TemporaryFolder folder;
  const std::string text("any\0bytes\n", 10);
  write_file(folder / "f", text);
  EXPECT_EQ(read_file(folder / "f"), text);
  write_file(folder / "f", "");
  EXPECT_EQ(read_file(folder / "f"), "");
}

TEST(Files, WritingLeavesNothingElseBehind) {
  TemporaryFolder folder;
  write_file(folder / "f", "one");
  write_file(folder / "f", "two");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"f"});
}

TEST(Files, AFailedWriteLeavesNothingBehind) {
  TemporaryFolder folder;
  fs::create_directory(folder / "f");
  EXPECT_THAT([&] { write_file(folder / "f", "text"); }, ThrowsMessage<Error>(HasSubstr("is a directory")));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"f"});
  EXPECT_THAT([&] { write_file(folder / "no" / "f", "text"); },
              ThrowsMessage<Error>(HasSubstr("No such file")));
  EXPECT_THAT([&] { write_file("/dev/full", "text"); }, ThrowsMessage<Error>(HasSubstr("No space left")));
}

TEST(Files, ALinkStaysALink) {
  TemporaryFolder folder;
  write_file(folder / "file", "old");
  fs::create_symlink("file", folder / "link");
  write_file(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "file"), "new");
}

TEST(Files, WhatCannotBeReadIsNamed) {
  TemporaryFolder folder;
  EXPECT_THAT([&] { read_file(folder / "none"); }, ThrowsMessage<Error>(HasSubstr("none: No such file")));
  EXPECT_THAT([&] { read_file(folder.path()); },
              ThrowsMessage<Error>(HasSubstr("is a directory, not a file")));
}

}  // namespace
}  // namespace nimble::testing
