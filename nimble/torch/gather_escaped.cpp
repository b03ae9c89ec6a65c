#include "nimble/torch/gather_escaped.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

#include <memory>
#include <vector>

namespace nimble {
namespace {

using SharedMemory = std::shared_ptr<at::DataPtr>;

// A part of memory that lives as long as anybody has a part of it.
at::DataPtr part_of(const SharedMemory& memory, std::size_t offset) {
  return {static_cast<char*>(memory->get()) + offset, new SharedMemory(memory),
          [](void* context) { delete static_cast<SharedMemory*>(context); }, memory->device()};
}

std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t kAlignment = 512;  // as PyTorch's own
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

at::Tensor bytes_at(void* data, std::size_t size, c10::Device device) {
  return at::from_blob(data, {static_cast<std::int64_t>(size)}, at::device(device).dtype(at::kByte));
}

}  // namespace

void gather_escaped(Program& program) {
  const c10::Device device = program.device();
  if (!device.is_cuda()) return;
  std::vector<Buffer*> escaped;
  std::size_t size = 0;
  for (Buffer& buffer : program.buffers) {
    if (buffer.kind != BufferKind::kEscaped || buffer.device != device || buffer.bytes == 0) continue;
    escaped.push_back(&buffer);
    size += aligned(buffer.bytes);
  }
  if (escaped.empty()) return;
  const at::NoGradGuard no_grad;
  const c10::InferenceMode ordinary(false);
  const c10::DeviceGuard on_device(device);
  const auto memory = std::make_shared<at::DataPtr>(c10::GetAllocator(device.type())->allocate(size));
  std::size_t offset = 0;
  for (Buffer* buffer : escaped) {
    at::DataPtr place = part_of(memory, offset);
    bytes_at(place.get(), buffer->bytes, device).copy_(bytes_at(buffer->address, buffer->bytes, device));
    buffer->address = place.get();
    buffer->outside.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(place));
    offset += aligned(buffer->bytes);
  }
}

}  // namespace nimble
