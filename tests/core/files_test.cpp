#include "nimble/core/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
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

// A file that somebody removes meanwhile, as its writer sees it.
TEST(Files, AFileThatIsGoneIsNamed) {
  TemporaryFolder folder;
  write_file(folder / "f", "text");
  const int file = ::open((folder / "f").c_str(), O_RDONLY);
  fs::remove(folder / "f");
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  EXPECT_THAT([&] { write_file(path, "text"); }, ThrowsMessage<Error>(HasSubstr(path + ": No such file")));
  ::close(file);
}

TEST(Files, WhatKilledWritersLeftGoesAfterADay) {
  TemporaryFolder folder;
  const auto make = [&](const std::string& name, std::chrono::hours age) {
    write_file(folder / name, "text");
    fs::last_write_time(folder / name, fs::file_time_type::clock::now() - age);
  };
  using std::chrono::hours;
  make("left.ours.tmp12-0", hours(25));
  make("being written.ours.tmp12-1", hours(23));
  make("kept.ours", hours(25));
  for (const char* name : {"somebody's.tmp12-0", "a.ours.tmp", "a.ours.tmp1-x"}) make(name, hours(25));
  remove_left_temporaries(folder.path(), ".ours");
  EXPECT_EQ(folder.names(),
            (std::vector<std::string>{"a.ours.tmp", "a.ours.tmp1-x", "being written.ours.tmp12-1",
                                      "kept.ours", "somebody's.tmp12-0"}));
  EXPECT_NO_THROW(remove_left_temporaries(folder / "none", ".ours"));
}

TEST(Files, WhatCannotBeReadIsNamed) {
  TemporaryFolder folder;
  EXPECT_THAT([&] { read_file(folder / "none"); }, ThrowsMessage<Error>(HasSubstr("none: No such file")));
  EXPECT_THAT([&] { read_file(folder.path()); },
              ThrowsMessage<Error>(HasSubstr("is a directory, not a file")));
}

}  // namespace
}  // namespace nimble::testing
