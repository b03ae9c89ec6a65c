#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <thread>

namespace nimble {

// Keeps a GPU busy with work of no interest as long as it lives, from a thread and on a stream of its own.
// Kernels that add in any order then really do: alone on the device their blocks start in nearly the same
// order every time.
class DeviceLoad {
 public:
  explicit DeviceLoad(c10::Device device);
  ~DeviceLoad();
  DeviceLoad(const DeviceLoad&) = delete;
  DeviceLoad& operator=(const DeviceLoad&) = delete;

 private:
  void work(c10::Device device) const;

  std::atomic<bool> ended_ = false;
  std::jthread worker_;  // last: it asks the other
};

}  // namespace nimble
