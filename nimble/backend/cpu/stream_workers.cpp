#include "nimble/backend/cpu/stream_workers.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nimble::cpu {
namespace {

void breathe() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// How this thread rounds, and whether it makes tiny numbers zero (torch.set_flush_denormal): every thread has
// a mode of its own.
std::uint32_t float_mode() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~static_cast<std::uint32_t>(_MM_EXCEPT_MASK);
#else
  return 0;
#endif
}

void enter_float_mode([[maybe_unused]] std::uint32_t mode) {
#if defined(__x86_64__)
  if (float_mode() != mode) _mm_setcsr(mode);
#endif
}

}  // namespace

void Event::raise_to(std::uint64_t value) {
  value_.store(value, std::memory_order_release);
  value_.notify_all();
}

void Event::wait_for(std::uint64_t value) const {
  constexpr int kSpins = 4000;  // some tens of microseconds: longer than a wake-up costs
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value_.load(std::memory_order_acquire) >= value) return;
    breathe();
  }
  for (std::uint64_t now; (now = value_.load(std::memory_order_acquire)) < value;) {
    value_.wait(now, std::memory_order_acquire);
  }
}

StreamWorkers::StreamWorkers(std::size_t count, std::function<void()> setup) : done_(count) {
  try {
    for (std::size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, i, setup] { work(i, setup); });
    }
  } catch (...) {
    stop();
    throw;
  }
}

StreamWorkers::~StreamWorkers() { stop(); }

void StreamWorkers::stop() {
  stopping_.store(true);
  start_.raise_to(++round_);
  for (auto& thread : threads_) thread.join();
}

void StreamWorkers::run(const std::function<void(std::size_t)>& job) {
  job_ = &job;
  float_mode_ = float_mode();
  start_.raise_to(++round_);
  job(0);
  for (const Event& done : done_) done.wait_for(round_);
}

void StreamWorkers::work(std::size_t index, const std::function<void()>& setup) {
  setup();
  for (std::uint64_t round = 1;; ++round) {
    start_.wait_for(round);
    if (stopping_.load()) return;
    enter_float_mode(float_mode_);
    (*job_)(index + 1);
    done_[index].raise_to(round);
  }
}

}  // namespace nimble::cpu
