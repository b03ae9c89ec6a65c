#include "nimble/backend/cuda/written_state.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <unordered_set>

#include "nimble/backend/cuda/generators.h"

namespace nimble::cuda {

at::Tensor bytes_of(const c10::Storage& storage) {
  const TensorRef whole{
      .buffer = {}, .sizes = {static_cast<std::int64_t>(storage.nbytes())}, .strides = {1}, .dtype = at::kByte};
  return materialize(whole, storage);
}

WrittenState::WrittenState(const Program& program) {
  const c10::InferenceMode ordinary(false);
  std::unordered_set<BufferId> written;
  for (const Task& task : program.tasks) {
    for (const TensorRef& ref : task.writes) written.insert(ref.buffer);
  }
  for (const BufferId id : written) {
    const Buffer& buffer = program.buffer(id);
    if (!buffer.outside.defined() || buffer.bytes == 0) continue;
    at::Tensor bytes = bytes_of(buffer.outside.storage());
    tensors_.push_back({bytes, bytes.clone()});
  }
  for (const at::Generator& generator : generators_of(program)) {
    at::Generator own = generator;
    const std::lock_guard lock(own.mutex());
    generators_.push_back({own, own.get_state()});
  }
}

void WrittenState::restore() {
  const c10::InferenceMode ordinary(false);
  for (const Place& place : tensors_) place.outside.copy_(place.copy, /*non_blocking=*/true);
  for (GeneratorPlace& place : generators_) {
    const std::lock_guard lock(place.generator.mutex());
    place.generator.set_state(place.state);
  }
}

}  // namespace nimble::cuda
