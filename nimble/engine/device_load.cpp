#include "nimble/engine/device_load.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace nimble {
namespace {

// From a few blocks to more than a GPU has room for.
constexpr std::int64_t kSmallest = 1 << 12, kLargest = 1 << 21;

}  // namespace

DeviceLoad::DeviceLoad(c10::Device device) : worker_([this, device] { work(device); }) {}

DeviceLoad::~DeviceLoad() {
  ended_ = true;
  worker_.join();
}

void DeviceLoad::work(c10::Device device) const {
  const at::NoGradGuard no_grad;
  try {
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    const c10::StreamGuard on_stream(stream);
    const at::Tensor scratch = at::zeros({kLargest}, at::device(device));
    while (!ended_) {
      for (std::int64_t size = kSmallest; size <= kLargest; size *= 2) scratch.narrow(0, 0, size).add_(1);
      stream.synchronize();  // no more than this is ever waiting
    }
  } catch (const std::exception&) {
    // The device is in error, which whatever is asked of it next will say.
  }
}

}  // namespace nimble
