#include "nimble/kernels/disk_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "nimble/core/error.h"
#include "nimble/core/files.h"
#include "nimble/core/hash.h"

namespace nimble::kernels {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kFormat = "nimble cache 1\n", kEnding = ".nimble";

// Of a value, to notice damage, and of a key, to name its file; keys are compared whole.
std::string checksum(std::string_view text) {
  Hash hash;
  hash.add_bytes(text);
  return hash.digits();
}

bool belongs_to_this_user_alone(const fs::path& folder) {
  struct stat facts = {};
  return ::stat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid() &&
         (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// "<format><checksum of what follows>\n<length of the key>\n<key><value>"
std::string to_file(std::string_view key, std::string_view value) {
  const std::string body = std::to_string(key.size()) + "\n" + std::string(key) + std::string(value);
  return std::string(kFormat) + checksum(body) + "\n" + body;
}

std::optional<std::string> from_file(std::string_view text, std::string_view key) {
  if (!text.starts_with(kFormat)) return {};
  text.remove_prefix(kFormat.size());
  const auto end = text.find('\n');
  if (end == text.npos || text.substr(0, end) != checksum(text.substr(end + 1))) return {};
  const std::string head = std::to_string(key.size()) + "\n" + std::string(key);
  const std::string_view body = text.substr(end + 1);
  if (!body.starts_with(head)) return {};
  return std::string(body.substr(head.size()));
}

}  // namespace

DiskCache::DiskCache(fs::path folder) {
  if (folder.empty()) return;
  std::error_code ignored;
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), ignored);
  ::mkdir(folder.c_str(), S_IRWXU);  // it may be there already
  if (!belongs_to_this_user_alone(folder)) return;
  folder_ = std::move(folder);
  remove_left_temporaries(folder_, kEnding);
}

DiskCache DiskCache::of_user() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value ? value : "");
  };
  if (const auto folder = variable("NIMBLE_CACHE_DIR"); !folder.empty()) return DiskCache(folder);
  if (const auto folder = variable("XDG_CACHE_HOME"); !folder.empty()) return DiskCache(folder / "nimble");
  const auto home = variable("HOME");
  return DiskCache(home.empty() ? fs::path() : home / ".cache" / "nimble");
}

fs::path DiskCache::file_of(std::string_view key) const {
  return folder_ / (checksum(key) + std::string(kEnding));
}

std::optional<std::string> DiskCache::load(std::string_view key) const {
  if (!in_use()) return {};
  try {
    return from_file(read_file(file_of(key)), key);
  } catch (const Error&) {  // not there yet
    return {};
  }
}

void DiskCache::store(std::string_view key, std::string_view value) const {
  if (!in_use()) return;
  try {
    write_file(file_of(key), to_file(key, value));
  } catch (const Error&) {
  }
}

}  // namespace nimble::kernels
