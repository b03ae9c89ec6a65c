#pragma once

#include <atomic>
#include <cstddef>
#include <iterator>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace nimble {

// Where the arenas of the process lie, to tell their addresses from real allocations when PyTorch frees raw
// memory. Any thread may ask; asking costs one load where there is no arena.
class ArenaMap {
 public:
  void add(const char* begin, std::size_t size) {
    std::unique_lock lock(mutex_);
    ends_.emplace(begin, begin + size);
    count_.store(ends_.size(), std::memory_order_release);
  }
  void remove(const char* begin) {
    std::unique_lock lock(mutex_);
    ends_.erase(begin);
    count_.store(ends_.size(), std::memory_order_release);
  }
  // Where the arena that `pointer` lies in begins; nullptr for a pointer into none.
  const char* begin_of(const void* pointer) const {
    if (count_.load(std::memory_order_acquire) == 0) return nullptr;
    std::shared_lock lock(mutex_);
    const auto after = ends_.upper_bound(static_cast<const char*>(pointer));
    if (after == ends_.begin()) return nullptr;
    const auto& [begin, end] = *std::prev(after);
    return pointer < end ? begin : nullptr;
  }
  bool contains(const void* pointer) const { return begin_of(pointer) != nullptr; }

 private:
  mutable std::shared_mutex mutex_;
  std::map<const char*, const char*> ends_;
  std::atomic<std::size_t> count_ = 0;
};

}  // namespace nimble
