#include "nimble/backend/cpu/stream_workers.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <limits>
#include <system_error>

namespace nimble::cpu {
namespace {

TEST(StreamWorkers, RunAJobOnAllThreadsAgainAndAgain) {
  std::atomic<int> set_up = 0, ran = 0;
  StreamWorkers workers(3, [&] { ++set_up; });
  for (int round = 0; round < 5; ++round) workers.run([&](std::size_t) { ++ran; });
  EXPECT_EQ(set_up, 3);
  EXPECT_EQ(ran, 5 * 4);
}

TEST(StreamWorkers, FlushTinyNumbersWhereTheirCallerDoes) {
  StreamWorkers workers(1, [] {});
  float results[2] = {};
  const auto halve = [&](std::size_t stream) {
    const volatile float smallest = std::numeric_limits<float>::min();
    results[stream] = smallest / 2;
  };
  for (const bool flush : {false, true, false}) {
    if (!at::globalContext().setFlushDenormal(flush)) GTEST_SKIP() << "not on this processor";
    workers.run(halve);
    at::globalContext().setFlushDenormal(false);
    EXPECT_EQ(results[0] == 0, flush);
    EXPECT_EQ(results[1] == 0, flush);
  }
}

// What each thread does first, which it takes a copy of. One of the copies cannot be made, as if the system
// had no thread more to give.
struct FirstJob {
  int* copies_left;
  std::atomic<int>* ran;

  FirstJob(int* copies_left, std::atomic<int>* ran) : copies_left(copies_left), ran(ran) {}
  FirstJob(const FirstJob& other) : copies_left(other.copies_left), ran(other.ran) {
    if ((*copies_left)-- == 0)
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  }
  void operator()() const { ++*ran; }
};

TEST(StreamWorkers, StopThoseThatRunWhereAnotherCannotBeStarted) {
  int copies_left = 100;
  std::atomic<int> ran = 0;
  std::function<void()> setup = FirstJob(&copies_left, &ran);
  copies_left = 2;
  EXPECT_THROW(StreamWorkers(4, std::move(setup)), std::system_error);
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace nimble::cpu
