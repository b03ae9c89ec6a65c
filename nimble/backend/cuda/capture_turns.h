#pragma once

#include <atomic>
#include <mutex>
#include <thread>

namespace nimble::cuda {

// A mutex that also the thread that has it may try to lock: when garbage is collected in the middle of a
// capture, an executable may go.
class CaptureMutex {
 public:
  void lock();
  bool try_lock();
  void unlock();

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> owner_;
};

// Captures and what prepares them happen one after the other in the whole process: a PyTorch generator can be
// captured by one thread at a time.
std::unique_lock<CaptureMutex> one_capture_at_a_time();

// The same for whoever will not wait: not locked if somebody is capturing, be it this thread.
std::unique_lock<CaptureMutex> no_capture_meanwhile();

}  // namespace nimble::cuda
