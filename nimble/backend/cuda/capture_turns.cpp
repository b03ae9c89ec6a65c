#include "nimble/backend/cuda/capture_turns.h"

namespace nimble::cuda {
namespace {

CaptureMutex& capturing() {
  static auto* mutex = new CaptureMutex;
  return *mutex;
}

}  // namespace

void CaptureMutex::lock() {
  mutex_.lock();
  owner_ = std::this_thread::get_id();
}

bool CaptureMutex::try_lock() {
  const auto self = std::this_thread::get_id();
  if (owner_ == self || !mutex_.try_lock()) return false;
  owner_ = self;
  return true;
}

void CaptureMutex::unlock() {
  owner_ = std::thread::id();
  mutex_.unlock();
}

std::unique_lock<CaptureMutex> one_capture_at_a_time() { return std::unique_lock(capturing()); }
std::unique_lock<CaptureMutex> no_capture_meanwhile() { return {capturing(), std::try_to_lock}; }

}  // namespace nimble::cuda
