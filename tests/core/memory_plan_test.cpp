#include "nimble/core/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "nimble/core/error.h"
#include "nimble/core/schedule.h"
#include "tests/core/brute_force.h"
#include "tests/core/model_graphs.h"
#include "tests/core/random_graphs.h"

namespace nimble::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TaskGraph chain(std::size_t tasks) {
  TaskGraphBuilder builder;
  for (std::uint32_t t = 0; t < tasks; ++t) {
    builder.add_task("t" + std::to_string(t));
    if (t > 0) builder.add_edge(TaskId{t - 1}, TaskId{t});
  }
  return std::move(builder).build();
}

BufferSpec buffer(std::uint64_t bytes, std::vector<std::uint32_t> uses, std::uint64_t alignment = 1) {
  BufferSpec spec{"buffer", bytes, alignment, {}};
  for (std::uint32_t use : uses) spec.uses.push_back(TaskId{use});
  return spec;
}

TEST(PlaceApart, GivesEveryBufferAlignedBytesOfItsOwn) {
  const std::vector<BufferSpec> buffers = {buffer(10, {0}), buffer(0, {1}), buffer(64, {1}, 64),
                                           buffer(3, {2}, 4)};
  const MemoryPlan plan = place_apart(buffers);
  EXPECT_EQ(plan.offsets, (std::vector<std::uint64_t>{0, 10, 64, 128}));
  EXPECT_EQ(plan.arena_bytes, 131u);
  EXPECT_EQ(place_apart({}), MemoryPlan{});
}

MemoryPlan plan_in_order(const std::vector<BufferSpec>& buffers, const TaskGraph& graph) {
  return plan_memory(buffers, graph, graph.topological_order());
}

double ratio(const MemoryPlan& plan) {
  return static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound);
}

TEST(MemoryPlan, GivesBytesToTheNextWhoseUsesComeAfter) {
  const MemoryPlan plan =
      plan_in_order({buffer(100, {0, 1}), buffer(100, {1, 2}), buffer(100, {2, 3})}, chain(4));
  EXPECT_EQ(plan.arena_bytes, 200);
  EXPECT_EQ(plan.lower_bound, 200);
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
  EXPECT_NE(plan.offsets[0], plan.offsets[1]);
}

TEST(MemoryPlan, KeepsBuffersOfOneTaskApart) {
  const MemoryPlan plan = plan_in_order({buffer(64, {0}), buffer(64, {0})}, chain(1));
  EXPECT_EQ(plan.arena_bytes, 128);
}

// Launched one after the other, yet nothing orders b after a: they may run at the same time.
TEST(MemoryPlan, KeepsUnorderedTasksApartThoughLaunchedInTurn) {
  TaskGraphBuilder builder;
  builder.add_task("a");
  builder.add_task("b");
  const MemoryPlan plan = plan_in_order({buffer(64, {0}), buffer(64, {1})}, std::move(builder).build());
  EXPECT_EQ(plan.arena_bytes, 128);
  EXPECT_EQ(plan.lower_bound, 64);
}

TEST(MemoryPlan, AlignsOffsets) {
  const MemoryPlan plan = plan_in_order({buffer(3, {0}), buffer(8, {0}, 8), buffer(100, {0}, 256)}, chain(1));
  EXPECT_EQ(plan.offsets[1] % 8, 0);
  EXPECT_EQ(plan.offsets[2] % 256, 0);
}

TEST(MemoryPlan, GivesEmptyBuffersNoBytes) {
  const MemoryPlan plan = plan_in_order({buffer(0, {0}, 64), buffer(0, {0})}, chain(1));
  EXPECT_EQ(plan.arena_bytes, 0);
  EXPECT_THAT(plan.offsets, Each(0));
}

TEST(MemoryPlan, OfNoBuffersIsEmpty) { EXPECT_EQ(plan_in_order({}, chain(3)), MemoryPlan()); }

TEST(MemoryPlan, HandlesSizesUpToTheLimit) {
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 62;
  const MemoryPlan plan = plan_in_order({buffer(kHalf, {0}, 1 << 20), buffer(kHalf, {0}, 1 << 20)}, chain(1));
  EXPECT_EQ(plan.arena_bytes, 2 * kHalf);
}

TEST(MemoryPlan, RefusesWhatNoBufferCanBe) {
  const auto refusal = [](BufferSpec spec, const char* why) {
    EXPECT_THAT(([&] { plan_in_order({std::move(spec)}, chain(2)); }),
                ThrowsMessage<InvalidInput>(HasSubstr(why)));
  };
  refusal(buffer(1, {0}, 3), "alignment of 3 is no power of two");
  refusal(buffer(1, {0}, 0), "alignment of 0 is no power of two");
  refusal(buffer(1, {}), "no task uses it");
  refusal(buffer(1, {2}), "only 2 tasks");
  refusal(buffer(std::numeric_limits<std::uint64_t>::max(), {0}), "2^64 bytes");
}

TEST(MemoryPlan, RefusesALaunchOrderThatIsNone) {
  const TaskGraph graph = chain(2);
  constexpr TaskId first{0}, second{1};
  for (const std::vector<TaskId>& order :
       {std::vector{first}, {first, first}, {first, TaskId{2}}, {second, first}, {first, second, second}})
    EXPECT_THROW(plan_memory({}, graph, order), InvalidInput);
}

// Every schedule of many shapes: no overlap, aligned, inside the arena, bound right.
TEST(MemoryPlan, NeverSharesBytesThatAreInUse) {
  for (std::uint64_t seed = 0; seed < 12; ++seed)
    for (Shape shape : kShapes)
      for (StreamLimit limit : {StreamLimit::maximum(), StreamLimit::at_most(1), StreamLimit::at_most(3)}) {
        Random random(seed);
        const TaskGraph graph = random_graph(random, shape, random.between(1, 150));
        const auto buffers = random_buffers(random, graph);
        const Schedule schedule = plan(graph, buffers, limit);
        EXPECT_THAT(
            overlapping_buffers(buffers, schedule.memory, Order(happens_before_graph(graph, schedule))),
            IsEmpty())
            << name_of(shape) << ", seed " << seed;
        EXPECT_EQ(schedule.memory.lower_bound, most_bytes_live(buffers, schedule.launch_order));
        for (std::size_t b = 0; b < buffers.size(); ++b) {
          EXPECT_EQ(schedule.memory.offsets[b] % buffers[b].alignment, 0);
          EXPECT_LE(schedule.memory.offsets[b] + buffers[b].bytes, schedule.memory.arena_bytes);
        }
      }
}

TEST(MemoryPlan, IsWithinATenthOfTheBoundForModelsOnOneStream) {
  for (const auto& [graph, buffers] :
       {inception_like(5), inception_like(11), inception_like(40), nasnet_like(4), nasnet_like(18),
        training_like(10), training_like(50), training_like(200), branchy(500, 22), branchy(2000, 44),
        branchy(2000, 8, 2)})
    EXPECT_LE(ratio(plan(graph, buffers, StreamLimit::at_most(1)).memory), 1.10)
        << graph.task_count() << " tasks";
}

// Lifetimes at random, unlike any program's, with sizes that differ as those of a network's tensors do.
TEST(MemoryPlan, IsWithinATenthOfTheBoundForRandomLifetimesOnOneStream) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const std::size_t tasks = random.between(20, 400);
    const std::uint64_t longest = random.between(1, 10);
    std::vector<BufferSpec> buffers;
    for (std::size_t b = 0; b < tasks; ++b) {
      const auto first = static_cast<std::uint32_t>(random.between(0, tasks - 1));
      const auto last =
          std::min<std::uint64_t>(tasks - 1, first + random.between(1, std::uint64_t{1} << longest));
      buffers.push_back(buffer(64 * random.between(1, 4096), {first}, 64));
      if (last != first) buffers.back().uses.push_back(TaskId{static_cast<std::uint32_t>(last)});
    }
    const TaskGraph graph = chain(tasks);
    const MemoryPlan plan = plan_in_order(buffers, graph);
    EXPECT_LE(ratio(plan), 1.10) << "seed " << seed;
    EXPECT_THAT(overlapping_buffers(buffers, plan, Order(graph)), IsEmpty());
  }
}

// So many conflicts that they are not listed: the strategies for big inputs take over.
TEST(MemoryPlan, IsWithinATenthOfTheBoundWithVeryManyConflicts) {
  Random random(5);
  constexpr std::size_t kTasks = 12'000;
  std::vector<BufferSpec> buffers;
  for (std::size_t b = 0; b < kTasks; ++b) {
    const auto first = static_cast<std::uint32_t>(random.between(0, kTasks - 1));
    const auto last = static_cast<std::uint32_t>(random.between(first, kTasks - 1));
    buffers.push_back(buffer(random.between(1, std::uint64_t{1} << random.between(4, 20)), {first}));
    if (last != first) buffers.back().uses.push_back(TaskId{last});
  }
  const TaskGraph graph = chain(kTasks);
  const MemoryPlan plan = plan_in_order(buffers, graph);
  EXPECT_LE(ratio(plan), 1.10);
  std::vector<std::size_t> by_offset(buffers.size());
  for (std::size_t b = 0; b < buffers.size(); ++b) by_offset[b] = b;
  std::sort(by_offset.begin(), by_offset.end(),
            [&](auto a, auto b) { return plan.offsets[a] < plan.offsets[b]; });
  std::size_t overlaps = 0;
  for (std::size_t i = 0; i < by_offset.size(); ++i) {
    const BufferSpec& low = buffers[by_offset[i]];
    for (std::size_t j = i + 1; j < by_offset.size(); ++j) {
      const BufferSpec& high = buffers[by_offset[j]];
      if (plan.offsets[by_offset[j]] >= plan.offsets[by_offset[i]] + low.bytes) break;
      overlaps += low.uses.back() >= high.uses.front() && high.uses.back() >= low.uses.front();
    }
  }
  EXPECT_EQ(overlaps, 0);
}

}  // namespace
}  // namespace nimble::testing
