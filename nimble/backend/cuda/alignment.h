#pragma once

#include <cstdint>

namespace nimble::cuda {

// What PyTorch's caching allocator gives, and so what kernels find in eager code.
inline constexpr std::uint64_t kAlignment = 512;

// The next multiple of it.
inline std::uint64_t align(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace nimble::cuda
