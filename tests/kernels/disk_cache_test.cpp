#include "nimble/kernels/disk_cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "nimble/core/files.h"
#include "tests/core/temporary_folder.h"

namespace nimble::kernels {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

class DiskCacheTest : public ::testing::Test {
 protected:
  TemporaryFolder temporary;
  fs::path folder = temporary.path() / "cache";
};

// An environment variable that is put back.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST_F(DiskCacheTest, GivesBackWhatWasStored) {
  const std::string value("bytes \0 of any kind\n", 20);
  DiskCache(folder).store("key", value);
  EXPECT_EQ(DiskCache(folder).load("key"), value);
  EXPECT_EQ(DiskCache(folder).load("another key"), std::nullopt);
}

TEST_F(DiskCacheTest, MakesAFolderForItsOwnerAlone) {
  ASSERT_TRUE(DiskCache(folder / "deeper").in_use());
  struct stat facts = {};
  ASSERT_EQ(::stat((folder / "deeper").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
}

TEST_F(DiskCacheTest, AFolderThatOthersMayWriteToIsNotUsed) {
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::all);
  const DiskCache cache(folder);
  EXPECT_FALSE(cache.in_use());
  cache.store("key", "value");
  EXPECT_EQ(cache.load("key"), std::nullopt);
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(DiskCacheTest, AFileInPlaceOfTheFolderIsNotUsed) {
  write_file(folder, "text");
  EXPECT_FALSE(DiskCache(folder).in_use());
}

TEST_F(DiskCacheTest, EveryTruncationCountsAsAbsent) {
  const DiskCache cache(folder);
  cache.store("key", "value");
  const std::string whole = read_file(cache.file_of("key"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_file(cache.file_of("key"), whole.substr(0, length));
    EXPECT_EQ(cache.load("key"), std::nullopt) << length << " of " << whole.size() << " bytes";
  }
}

TEST_F(DiskCacheTest, EveryChangedByteCountsAsAbsent) {
  const DiskCache cache(folder);
  cache.store("key", "value");
  const std::string whole = read_file(cache.file_of("key"));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string altered = whole;
    altered[i] ^= 1;
    write_file(cache.file_of("key"), altered);
    EXPECT_EQ(cache.load("key"), std::nullopt) << "byte " << i;
  }
}

TEST_F(DiskCacheTest, AForeignFileIsReplaced) {
  const DiskCache cache(folder);
  write_file(cache.file_of("key"), "something else");
  EXPECT_EQ(cache.load("key"), std::nullopt);
  cache.store("key", "value");
  EXPECT_EQ(cache.load("key"), "value");
}

TEST_F(DiskCacheTest, TwoKeysWithOneFileNameAreToldApart) {
  const DiskCache cache(folder);
  cache.store("key", "value");
  fs::rename(cache.file_of("key"), cache.file_of("another"));
  EXPECT_EQ(cache.load("another"), std::nullopt);
}

TEST_F(DiskCacheTest, ReadersBesideWritersSeeWholeValuesOnly) {
  const DiskCache cache(folder);
  const std::string value(1 << 18, 'v');
  cache.store("key", value);
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        if (t % 2 == 0) cache.store("key", value);
        if (cache.load("key") != value) ++wrong;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1) << "left-over files";
}

// Runs `work` in a process of its own, which ends with what it returns.
template <class Work>
pid_t in_another_process(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  return child;
}

TEST_F(DiskCacheTest, ProcessesBesideEachOtherSeeWholeValuesOnly) {
  const std::string value(1 << 18, 'v');
  DiskCache(folder).store("key", value);
  std::vector<pid_t> children;
  for (int p = 0; p < 4; ++p) {
    children.push_back(in_another_process([&] {
      const DiskCache cache(folder);
      int wrong = 0;
      for (int i = 0; i < 50; ++i) {
        if (p % 2 == 0) cache.store("key", value);
        wrong += cache.load("key") != value ? 1 : 0;
      }
      return wrong;
    }));
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0) << "values that nobody stored";
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1) << "left-over files";
}

TEST_F(DiskCacheTest, AProcessThatIsKilledWhileItWritesLeavesAWholeValue) {
  const DiskCache cache(folder);
  const std::string before(1 << 20, 'b'), after(1 << 20, 'a');
  cache.store("key", before);
  for (int i = 0; i < 10; ++i) {
    int begun[2];
    ASSERT_EQ(::pipe(begun), 0);
    const pid_t child = in_another_process([&] {
      for (;;) {
        cache.store("key", after);
        if (::write(begun[1], "", 1) != 1) return 1;
      }
    });
    char told = 0;
    ASSERT_EQ(::read(begun[0], &told, 1), 1);  // it is in its second round by now, at any place of it
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ::close(begun[0]);
    ::close(begun[1]);
    EXPECT_EQ(cache.load("key"), after);
    cache.store("key", before);
    EXPECT_EQ(cache.load("key"), before);
  }
}

TEST_F(DiskCacheTest, WhatAKilledProcessLeftGoesADayLater) {
  const DiskCache cache(folder);
  cache.store("key", "value");
  const fs::path left = cache.file_of("key").string() + ".tmp123-0";
  write_file(left, "half a val");
  EXPECT_TRUE(DiskCache(folder).in_use());
  EXPECT_TRUE(fs::exists(left)) << "somebody may be writing it";
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(25));
  EXPECT_EQ(DiskCache(folder).load("key"), "value");
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(DiskCacheTest, TheUsersFolderIsNamedByTheEnvironment) {
  const std::string named = temporary.path() / "named", xdg = temporary.path() / "xdg",
                    home = temporary.path() / "home";
  const Variable h("HOME", home.c_str()), x("XDG_CACHE_HOME", xdg.c_str());
  {
    const Variable n("NIMBLE_CACHE_DIR", named.c_str());
    EXPECT_EQ(DiskCache::of_user().file_of("key").parent_path(), named);
  }
  const Variable n("NIMBLE_CACHE_DIR", nullptr);
  EXPECT_EQ(DiskCache::of_user().file_of("key").parent_path(), fs::path(xdg) / "nimble");
  const Variable no_xdg("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(DiskCache::of_user().file_of("key").parent_path(), fs::path(home) / ".cache" / "nimble");
  const Variable no_home("HOME", nullptr);
  EXPECT_FALSE(DiskCache::of_user().in_use());
}

}  // namespace
}  // namespace nimble::kernels
