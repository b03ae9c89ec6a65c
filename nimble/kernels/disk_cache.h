#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace nimble::kernels {

// Things that can be made again, kept in files of a folder that belongs to the user alone. A file holds the
// whole key beside the value, so two keys that share a file name are told apart, and a checksum, so a file
// that is truncated, altered or not ours counts as absent. Any number of processes may share a folder: a file
// appears whole or not at all.
class DiskCache {
 public:
  // Makes the folder, for its owner alone, where it is missing. One that belongs to somebody else, that
  // others may write to, or that cannot be made, is not used: then nothing is kept. What writers that were
  // killed have left in it goes after a day.
  explicit DiskCache(std::filesystem::path folder);

  // $NIMBLE_CACHE_DIR, else $XDG_CACHE_HOME/nimble, else ~/.cache/nimble; keeps nothing where there is none
  // of them.
  static DiskCache of_user();

  bool in_use() const { return !folder_.empty(); }
  std::filesystem::path file_of(std::string_view key) const;

  std::optional<std::string> load(std::string_view key) const;
  // A value that cannot be written (a full disk) is made again next time; that is no error.
  void store(std::string_view key, std::string_view value) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace nimble::kernels
