#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "nimble/torch/allocation_hook.h"
#include "nimble/torch/program.h"

namespace nimble {

// What is allocated, and freed again, while one operator runs.
class AllocationsOfCall final : public AllocationHook {
 public:
  struct Seen {
    void* pointer;
    std::size_t bytes;
    c10::Device device;
    bool freed = false;
    std::optional<BufferId> buffer = {};
  };

  void* serve(std::size_t, c10::Device) override { return nullptr; }
  void allocated(void* pointer, std::size_t bytes, c10::Device device) override {
    seen_.push_back({pointer, bytes, device});
  }
  void freed(void* pointer) override {
    if (Seen* seen = find(pointer)) seen->freed = true;
  }

  // The allocation that `pointer` still belongs to.
  Seen* find(const void* pointer) {
    const auto found = std::find_if(seen_.rbegin(), seen_.rend(),
                                    [&](const Seen& seen) { return seen.pointer == pointer && !seen.freed; });
    return found == seen_.rend() ? nullptr : &*found;
  }
  std::vector<Seen>& seen() { return seen_; }

 private:
  std::vector<Seen> seen_;
};

}  // namespace nimble
