#include "nimble/engine/time_in_turn.h"

#include <gtest/gtest.h>

#include "../torch/recorded.h"

namespace nimble {
namespace {

// Writes its name down whenever it runs.
class Runner : public Executable {
 public:
  Runner(char name, const std::shared_ptr<const Program>& program, std::string& order)
      : name_(name), plan_{.program = program, .graph = {}, .memory = {}, .schedule = {}}, order_(order) {}

  Tensors replay(std::span<const at::Tensor>) override {
    order_ += name_;
    return {};
  }
  ExecutableReport report() const override { return {}; }
  std::vector<Nanoseconds> measure_tasks(std::span<const at::Tensor>) override { return {}; }
  std::vector<TaskSpan> measure_timeline(std::span<const at::Tensor>) override { return {}; }
  const ExecutionPlan& plan() const override { return plan_; }

 private:
  char name_;
  ExecutionPlan plan_;
  std::string& order_;
};

class TimeInTurn : public ::testing::Test {
 protected:
  std::vector<std::vector<double>> timed(std::initializer_list<Executable*> executables, std::size_t most) {
    return time_in_turn(std::vector(executables), {}, /*seconds=*/0, most);
  }

  const std::shared_ptr<const Program> program_ = std::make_shared<const Program>(
      record({at::ones({2})}, [](const Tensors& in) -> Tensors { return {in[0] + 1}; }));
  std::string order_;
  Runner a_{'a', program_, order_}, b_{'b', program_, order_};
};

// What was timed right behind another one would be timed beside threads that still wait for its work: on two
// cores a schedule of two streams looked twice as slow as it is.
TEST_F(TimeInTurn, OnACpuEachRunsOnceMoreBeforeItIsTimed) {
  const auto times = timed({&a_, &b_}, 2);
  EXPECT_EQ(order_, "aabbaabb");
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].size(), 2u);
  EXPECT_EQ(times[1].size(), 2u);
}

TEST_F(TimeInTurn, OneAloneIsDisturbedByNobody) {
  timed({&a_}, 3);
  EXPECT_EQ(order_, "aaa");
}

TEST_F(TimeInTurn, ThreeRoundsAreMadeEvenWithoutTimeForThem) {
  EXPECT_EQ(timed({&a_, &b_}, 50)[0].size(), 3u);
}

}  // namespace
}  // namespace nimble
