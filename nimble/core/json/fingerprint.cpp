#include <cstdint>
#include <cstdio>
#include <span>
#include <string_view>

#include "nimble/core/json.h"

namespace nimble {
namespace {

// FNV-1a. Strings and lists go in behind their length, so that no two different graphs spell the same bytes.
class Hash {
 public:
  void add(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<std::uint8_t>(number >> shift));
  }
  void add(std::string_view text) {
    add(text.size());
    for (char c : text) add_byte(static_cast<std::uint8_t>(c));
  }
  void add(std::span<const TaskId> tasks) {
    add(tasks.size());
    for (TaskId task : tasks) add(std::uint64_t{task.value});
  }
  std::uint64_t value() const { return hash_; }

 private:
  void add_byte(std::uint8_t byte) { hash_ = (hash_ ^ byte) * 1099511628211u; }
  std::uint64_t hash_ = 14695981039346656037u;
};

}  // namespace

std::string fingerprint(const GraphFile& file) {
  Hash hash;
  hash.add(file.graph.task_count());
  for (std::uint32_t t = 0; t < file.graph.task_count(); ++t) {
    hash.add(file.graph.name(TaskId{t}));
    hash.add(file.graph.successors(TaskId{t}));
  }
  hash.add(file.buffers.size());
  for (const BufferSpec& buffer : file.buffers) {
    hash.add(buffer.name);
    hash.add(buffer.bytes);
    hash.add(buffer.alignment);
    hash.add(buffer.uses);
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash.value()));
  return digits;
}

}  // namespace nimble
