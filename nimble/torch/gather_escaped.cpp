#include "nimble/torch/gather_escaped.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

#include <memory>

namespace nimble {
namespace {

using SharedMemory = std::shared_ptr<at::DataPtr>;

// A part of memory that lives as long as anybody has a part of it.
at::DataPtr part_of(const SharedMemory& memory, std::size_t offset) {
  return {static_cast<char*>(memory->get()) + offset, new SharedMemory(memory),
          [](void* context) { delete static_cast<SharedMemory*>(context); }, memory->device()};
}

at::Tensor bytes_at(void* data, std::size_t size, c10::Device device) {
  return at::from_blob(data, {static_cast<std::int64_t>(size)}, at::device(device).dtype(at::kByte));
}

}  // namespace

void gather_escaped(Program& program) {
  constexpr std::size_t kAlignment = 512;  // as PyTorch's own
  const c10::Device device = program.device();
  if (!device.is_cuda()) return;
  c10::Allocator* allocator = c10::GetAllocator(device.type());
  const auto is_scattered = [&](const Buffer& buffer) {
    return buffer.kind == BufferKind::kEscaped && buffer.device == device && buffer.bytes > 0 &&
           buffer.outside.storage().data_ptr().get_deleter() == allocator->raw_deleter();
  };
  std::size_t size = 0;
  for (const Buffer& buffer : program.buffers) {
    if (is_scattered(buffer)) size += (buffer.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (size == 0) return;
  const at::NoGradGuard no_grad;
  const c10::InferenceMode ordinary(false);
  const auto memory = std::make_shared<at::DataPtr>(allocator->allocate(size));
  std::size_t offset = 0;
  for (Buffer& buffer : program.buffers) {
    if (!is_scattered(buffer)) continue;
    at::DataPtr place = part_of(memory, offset);
    bytes_at(place.get(), buffer.bytes, device).copy_(bytes_at(buffer.address, buffer.bytes, device));
    buffer.address = place.get();
    buffer.outside.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(place));
    offset += (buffer.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
}

}  // namespace nimble
