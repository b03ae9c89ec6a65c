// Every backend, in every form and at several numbers of streams, does what eager PyTorch does.
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <tuple>

#include "tests/conformance/delay.h"
#include "tests/conformance/replayed.h"

namespace nimble::testing {
namespace {

enum class Form { kCpu, kCudaGraph, kCudaStreams };

c10::Device device_of(Form form) {
  return form == Form::kCpu ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, 0);
}

BindOptions options_of(Form form) {
  BindOptions options;
  options.graph = form != Form::kCudaStreams;
  options.threads_per_stream = 1;
  return options;
}

class Conformance : public ::testing::TestWithParam<std::tuple<Form, std::size_t>> {
 protected:
  void SetUp() override {
    if (form() != Form::kCpu && !cuda_available()) GTEST_SKIP() << "no CUDA device";
    make_kernels_deterministic();
    at::manual_seed(1);
  }
  Form form() const { return std::get<0>(GetParam()); }
  std::size_t streams() const { return std::get<1>(GetParam()); }
  c10::Device device() const { return device_of(form()); }

  std::unique_ptr<Executable> prepared(const Subject& subject, BindOptions options) const {
    return prepare(record(subject, device()), streams(), options);
  }
  std::unique_ptr<Executable> prepared(const Subject& subject) const {
    return prepared(subject, options_of(form()));
  }
};

TEST_P(Conformance, EveryProgramReplaysLikeEager) {
  for (const NamedSubject& named : subjects()) {
    const Subject subject = named.make(device());
    EXPECT_TRUE(replays_like_eager(subject, *prepared(subject))) << named.name;
  }
}

TEST_P(Conformance, FiftyReplaysDrawWhatFiftyEagerRunsDraw) {
  const Subject subject = dropout_in_branches(device());
  EXPECT_TRUE(replays_like_eager(subject, *prepared(subject), 50));
}

TEST_P(Conformance, EverythingAllocatedInABranchyNetworkIsPlanned) {
  const Subject subject = branchy_convnet(device());
  const auto executable = prepared(subject);
  executable->replay(subject.fresh_inputs());
  EXPECT_EQ(executable->report().unplanned_allocations, 0u);
  EXPECT_GT(executable->report().arena_bytes, 0u);
}

TEST_P(Conformance, AliasedResultsAreRightAndOutliveTheExecutable) {
  const Subject subject = branchy_convnet(device());
  BindOptions options = options_of(form());
  options.alias_outputs = true;
  auto executable = prepared(subject, options);
  const Tensors inputs = subject.fresh_inputs();
  const Tensors first = executable->replay(inputs);
  EXPECT_TRUE(at::equal(first[0], subject.function(inputs)[0]));
  const Tensors other = subject.fresh_inputs();
  const Tensors second = executable->replay(other);
  EXPECT_EQ(first[0].const_data_ptr(), second[0].const_data_ptr());
  if (form() != Form::kCpu) executable.reset();
  EXPECT_TRUE(at::equal(second[0], subject.function(other)[0]));
}

TEST_P(Conformance, MeasuringTasksTimesEachAndLeavesResultsRight) {
  const Subject subject = branchy_convnet(device());
  const auto program = record(subject, device());
  const auto executable = prepare(program, streams(), options_of(form()));
  const auto times = executable->measure_tasks(subject.fresh_inputs());
  ASSERT_EQ(times.size(), program->tasks.size());
  for (const Nanoseconds time : times) EXPECT_GT(time, 0);
  EXPECT_GE(executable->measure_clock(subject.fresh_inputs()), 0);
  const Nanoseconds launch = executable->measure_launch(subject.fresh_inputs());
  EXPECT_EQ(launch > 0, form() == Form::kCudaGraph);
  EXPECT_TRUE(replays_like_eager(subject, *executable));
}

TEST_P(Conformance, ATimelineHasEveryTaskOnceOnItsStream) {
  for (const auto& make : {branchy_convnet, training_step}) {
    const Subject subject = make(device());
    const auto program = record(subject, device());
    const auto executable = prepare(program, streams(), options_of(form()));
    const auto spans = executable->measure_timeline(subject.fresh_inputs());
    ASSERT_EQ(spans.size(), program->tasks.size());
    const auto stream_of = executable->plan().schedule.stream_of();
    for (std::size_t i = 0; i < spans.size(); ++i) {
      EXPECT_EQ(spans[i].stream, stream_of[i]);
      EXPECT_GE(spans[i].start, 0);
      EXPECT_GT(spans[i].end, spans[i].start) << "a task that never ran has no length";
    }
  }
}

TEST_P(Conformance, InATimelineTasksOfOneStreamFollowEachOther) {
  const Subject subject = branchy_convnet(device());
  const auto executable = prepared(subject);
  const auto spans = executable->measure_timeline(subject.fresh_inputs());
  for (const StreamProgram& steps : executable->plan().schedule.streams) {
    Nanoseconds free_from = 0;
    for (const Step& step : steps) {
      const auto* run = std::get_if<nimble::Run>(&step);
      if (!run) continue;
      EXPECT_GE(spans[run->task.index()].start, free_from);
      free_from = spans[run->task.index()].end;
    }
  }
}

TEST_P(Conformance, InATimelineNoTaskStartsBeforeWhatItWaitsForHasEnded) {
  const Subject subject = parallel_matmul_chains(device());
  BindOptions options = options_of(form());
  // Streams of different speed: without the waits they would run apart.
  options.before_task = [this](TaskId task) {
    if (task.value % 3 != 0) return;
    if (form() == Form::kCpu) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    } else {
      delay_current_stream(300);
    }
  };
  const auto executable = prepared(subject, options);
  const auto spans = executable->measure_timeline(subject.fresh_inputs());
  const TaskGraph& graph = executable->plan().graph;
  for (std::uint32_t i = 0; i < graph.task_count(); ++i) {
    for (const TaskId before : graph.predecessors(TaskId{i})) {
      EXPECT_GE(spans[i].start, spans[before.index()].end)
          << graph.name(before) << " before " << graph.name(TaskId{i});
    }
  }
}

TEST_P(Conformance, MeasuringATimelineChangesNothing) {
  for (const auto& make : {updates_of_outside_tensors, dropout_in_branches, training_step}) {
    const Subject subject = make(device());
    const auto executable = prepared(subject);
    const Tensors inputs = subject.fresh_inputs();
    const Tensors outside = copies(subject.outside), given = copies(inputs);
    const at::Tensor generator = at::globalContext().defaultGenerator(device()).get_state();
    executable->measure_timeline(inputs);
    for (std::size_t i = 0; i < outside.size(); ++i) EXPECT_TRUE(at::equal(subject.outside[i], outside[i]));
    for (std::size_t i = 0; i < given.size(); ++i) EXPECT_TRUE(at::equal(inputs[i], given[i]));
    EXPECT_TRUE(at::equal(at::globalContext().defaultGenerator(device()).get_state(), generator));
    EXPECT_TRUE(replays_like_eager(subject, *executable));
  }
}

TEST_P(Conformance, WritesAreVisibleToAutograd) {
  const Subject subject = updates_of_outside_tensors(device());
  const auto executable = prepared(subject);
  const auto before = subject.outside[0]._version();
  executable->replay(subject.fresh_inputs());
  EXPECT_GT(subject.outside[0]._version(), before);
}

// Busy work of random length in front of random tasks finds what is ordered by luck alone.
TEST_P(Conformance, RandomDelaysChangeNoBit) {
  constexpr int kSchedules = 10;  // times 5 programs, times 2 to 4 numbers of several streams, for each form
  std::mt19937 random(static_cast<unsigned>(streams()) + 17);
  for (const auto& make : {branchy_convnet, parallel_matmul_chains, dropout_in_branches,
                           updates_of_outside_tensors, training_step}) {
    const Subject subject = make(device());
    const auto program = record(subject, device());
    for (int i = 0; i < kSchedules; ++i) {
      BindOptions options = options_of(form());
      options.before_task = [this, seed = random()](TaskId task) {
        std::mt19937 own(seed + task.value);
        if (own() % 3 != 0) return;
        const auto microseconds = static_cast<int>(own() % 150);
        if (form() == Form::kCpu) {
          std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
        } else {
          delay_current_stream(microseconds);
        }
      };
      EXPECT_TRUE(replays_like_eager(subject, *prepare(program, streams(), options), 2)) << "schedule " << i;
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Form, std::size_t>>& info) {
  const auto [form, streams] = info.param;
  return streams == 0 ? "most_streams" : std::to_string(streams) + "_streams";
}

INSTANTIATE_TEST_SUITE_P(Cpu, Conformance,
                         ::testing::Combine(::testing::Values(Form::kCpu), ::testing::Values(1, 2, 4, 0)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(CudaGraph, Conformance,
                         ::testing::Combine(::testing::Values(Form::kCudaGraph),
                                            ::testing::Values(1, 2, 4, 8, 0)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(CudaStreams, Conformance,
                         ::testing::Combine(::testing::Values(Form::kCudaStreams),
                                            ::testing::Values(1, 4, 0)),
                         name_of);

}  // namespace
}  // namespace nimble::testing
