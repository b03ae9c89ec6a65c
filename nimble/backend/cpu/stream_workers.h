#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace nimble::cpu {

// A counter that one thread raises and others wait for: spins for a moment, since most waits are short, then
// sleeps.
class Event {
 public:
  void raise_to(std::uint64_t value);
  void wait_for(std::uint64_t value) const;

 private:
  std::atomic<std::uint64_t> value_ = 0;
};

// Threads that stand by to run one function together with the caller, again and again. Started once, joined
// when the owner goes.
class StreamWorkers {
 public:
  // `setup` runs once on each of the `count` threads before its first job. Throws what std::thread throws
  // where that many are not to be had.
  StreamWorkers(std::size_t count, std::function<void()> setup);
  ~StreamWorkers();
  StreamWorkers(const StreamWorkers&) = delete;
  StreamWorkers& operator=(const StreamWorkers&) = delete;

  // Calls job(0) here and job(1) … job(count) on the workers, which compute with floats as the caller does;
  // returns when all are done. `job` must not throw.
  void run(const std::function<void(std::size_t)>& job);

 private:
  void work(std::size_t index, const std::function<void()>& setup);
  void stop();

  std::vector<std::thread> threads_;
  const std::function<void(std::size_t)>* job_ = nullptr;
  std::uint32_t float_mode_ = 0;  // of the caller
  Event start_;
  std::vector<Event> done_;
  std::uint64_t round_ = 0;
  std::atomic<bool> stopping_ = false;
};

}  // namespace nimble::cpu
