#include "nimble/kernels/cuda/cudnn/descriptor.h"

#include <algorithm>
#include <string>

#include "nimble/core/error.h"

namespace nimble::kernels::cudnn {

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(std::string("[nimble::fused_convolution] cuDNN could not ") + what + ": " +
              cudnnGetErrorString(status));
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  check(cudnnBackendCreateDescriptor(type, &made), "make a descriptor");
  handle_.reset(made);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
                     const void* values) {
  check(cudnnBackendSetAttribute(handle(), name, type, static_cast<std::int64_t>(count), values),
        ("take attribute " + std::to_string(name)).c_str());
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& other) {
  return set(name, std::span(&other, 1));
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, std::span<const Descriptor> others) {
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const Descriptor& other : others) handles.push_back(other.handle());
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles.size(), handles.data());
  return *this;
}

Descriptor& Descriptor::finish() {
  check(cudnnBackendFinalize(handle()), "do this convolution this way");
  return *this;
}

std::size_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            std::size_t most, void* values) const {
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(handle(), name, type, static_cast<std::int64_t>(most), &count, values),
        ("tell attribute " + std::to_string(name)).c_str());
  return std::min(most, static_cast<std::size_t>(count));
}

std::vector<Descriptor> Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                        std::size_t most) const {
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::size_t i = 0; i < most; ++i) handles.push_back(found.emplace_back(type).handle());
  const std::size_t count = get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, handles.data());
  found.erase(found.begin() + static_cast<std::ptrdiff_t>(count), found.end());
  return found;
}

}  // namespace nimble::kernels::cudnn
