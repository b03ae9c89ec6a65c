#include "nimble/core/files.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <system_error>

#include "nimble/core/error.h"

namespace nimble {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(const char* function, const fs::path& path, const std::string& reason) {
  throw Error("[nimble::" + std::string(function) + "] " + path.string() + ": " + reason);
}

std::string last_error() { return errno == 0 ? "unknown error" : std::strerror(errno); }

// Throws with errno's reason unless every byte reached the file.
void write_all(const fs::path& target, std::string_view text, const fs::path& path) {
  errno = 0;
  std::ofstream file(target, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) fail("write_file", path, last_error());
}

// Between the name of a file and what tells its writers apart.
constexpr std::string_view kTemporary = ".tmp";

bool is_temporary(std::string_view name, std::string_view ending) {
  const auto end = name.rfind(kTemporary);
  if (end == name.npos || !name.substr(0, end).ends_with(ending)) return false;
  const std::string_view writer = name.substr(end + kTemporary.size());
  return !writer.empty() && writer.find_first_not_of("0123456789-") == writer.npos;
}

}  // namespace

std::string read_file(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) fail("read_file", path, "is a directory, not a file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("read_file", path, last_error());
  std::string text;
  for (char block[1 << 16]; file.read(block, sizeof block), file.gcount() > 0;)
    text.append(block, static_cast<std::size_t>(file.gcount()));
  if (file.bad()) fail("read_file", path, last_error());
  return text;
}

void write_file(const fs::path& path, std::string_view text) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) fail("write_file", path, "is a directory, not a file");
  if (fs::exists(status) && !fs::is_regular_file(status)) return write_all(path, text, path);

  // Through a symbolic link the file it points to is replaced, not the link.
  const fs::path target = fs::exists(status) ? fs::canonical(path, error) : path;
  if (target.empty()) fail("write_file", path, error.message());
  static std::atomic<unsigned> serial = 0;
  fs::path temporary = target;
  temporary += std::string(kTemporary) + std::to_string(::getpid()) + "-" + std::to_string(serial++);
  try {
    write_all(temporary, text, path);
    fs::rename(temporary, target, error);
    if (error) fail("write_file", path, error.message());
  } catch (...) {
    fs::remove(temporary, error);
    throw;
  }
}

void remove_left_temporaries(const fs::path& folder, std::string_view ending) {
  const auto a_day_ago = fs::file_time_type::clock::now() - std::chrono::days(1);
  std::error_code error;  // others may take away the same ones
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!is_temporary(entry->path().filename().native(), ending)) continue;
    const auto written = entry->last_write_time(error);
    if (!error && written < a_day_ago) fs::remove(entry->path(), error);
    error.clear();
  }
}

}  // namespace nimble
