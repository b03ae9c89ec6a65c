#pragma once

#include <cstddef>

namespace nimble::cpu {

// Puts an allocator of ours in front of PyTorch's CPU allocator, once for the process. On threads without an
// AllocationHook it hands every request straight on.
void install_planned_allocator();

// One block of memory from which planned addresses are served. Freed when the owner goes; while it is there,
// raw pointers into it are recognised, so that nobody frees a part of it.
class Arena {
 public:
  explicit Arena(std::size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  char* data() const { return data_; }
  bool contains(const void* pointer) const { return pointer >= data_ && pointer < data_ + size_; }
  std::size_t size() const { return size_; }

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace nimble::cpu
