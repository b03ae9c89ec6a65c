#include <cstdint>
#include <span>
#include <string_view>

#include "nimble/core/hash.h"
#include "nimble/core/json.h"

namespace nimble {
namespace {

// Strings and lists go in behind their length, so that no two different graphs spell the same bytes.
class GraphHash {
 public:
  void add(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) hash_.add_byte(static_cast<std::uint8_t>(number >> shift));
  }
  void add(std::string_view text) {
    add(text.size());
    hash_.add_bytes(text);
  }
  void add(std::span<const TaskId> tasks) {
    add(tasks.size());
    for (TaskId task : tasks) add(std::uint64_t{task.value});
  }
  std::string digits() const { return hash_.digits(); }

 private:
  Hash hash_;
};

}  // namespace

std::string fingerprint(const GraphFile& file) {
  GraphHash hash;
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
  return hash.digits();
}

}  // namespace nimble
