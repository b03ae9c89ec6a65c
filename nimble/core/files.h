#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace nimble {

// The whole content of a file. Throws Error if it is not there, is a directory or cannot be read.
std::string read_file(const std::filesystem::path& path);

// Writes to a temporary name beside `path` and renames, so that no reader ever sees half a file and a failure
// leaves what was there before. What is no regular file (a pipe, /dev/stdout) is written to directly. Throws
// Error.
void write_file(const std::filesystem::path& path, std::string_view text);

// A writer that is killed leaves its temporary behind. Removes those in `folder` of files whose names end
// with `ending`, once nobody has written to them for a day.
void remove_left_temporaries(const std::filesystem::path& folder, std::string_view ending);

}  // namespace nimble
