// Plans random graphs, breaks the schedules at random, and asks brute force whether each is still right:
// `verify` must agree, both ways, and report exactly the same edges and buffers.
#include <gtest/gtest.h>
#include <algorithm>
#include <optional>

#include <functional>

#include "nimble/core/verify.h"
#include "random_graphs.h"
#include "schedule_oracle.h"

namespace nimble::testing {
namespace {

// Changes the schedule, or returns false if it has nothing that could be changed this way.
using Mutate = std::function<bool(Random&, Schedule&)>;
struct Mutation {
  const char* name;
  Mutate mutate;
  bool can_be_harmless = true, can_harm = true;
};

struct Place {
  std::size_t stream, step;
};

template <class Kind>
std::optional<Place> any_step(Random& random, const Schedule& schedule) {
  std::vector<Place> places;
  for (std::size_t s = 0; s < schedule.streams.size(); ++s)
    for (std::size_t i = 0; i < schedule.streams[s].size(); ++i)
      if (std::holds_alternative<Kind>(schedule.streams[s][i])) places.push_back({s, i});
  if (places.empty()) return std::nullopt;
  return places[random.between(0, places.size() - 1)];
}

template <class Kind>
bool remove_any(Random& random, Schedule& schedule) {
  const auto place = any_step<Kind>(random, schedule);
  if (!place) return false;
  StreamProgram& program = schedule.streams[place->stream];
  program.erase(program.begin() + static_cast<std::ptrdiff_t>(place->step));
  return true;
}

bool swap_two_tasks_of_a_stream(Random& random, Schedule& schedule) {
  const auto first = any_step<Run>(random, schedule);
  StreamProgram& program = schedule.streams[first->stream];
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < program.size(); ++i)
    if (i != first->step && std::holds_alternative<Run>(program[i])) others.push_back(i);
  if (others.empty()) return false;
  std::swap(program[first->step], program[others[random.between(0, others.size() - 1)]]);
  return true;
}

// Alone, or together with the waits right before it.
bool move_a_task_to_another_stream(Random& random, Schedule& schedule) {
  const auto from = any_step<Run>(random, schedule);
  if (schedule.streams.size() < 2) return false;
  StreamProgram& source = schedule.streams[from->stream];
  auto end = source.begin() + static_cast<std::ptrdiff_t>(from->step) + 1;
  auto begin = end - 1;
  if (random.chance(0.5))
    while (begin != source.begin() && std::holds_alternative<WaitEvent>(*(begin - 1))) --begin;
  const StreamProgram moved(begin, end);
  source.erase(begin, end);
  const std::size_t distance = random.between(1, schedule.streams.size() - 1);
  StreamProgram& target = schedule.streams[(from->stream + distance) % schedule.streams.size()];
  const auto place = target.begin() + static_cast<std::ptrdiff_t>(random.between(0, target.size()));
  target.insert(place, moved.begin(), moved.end());
  return true;
}

bool wait_for_another_event(Random& random, Schedule& schedule) {
  const auto place = any_step<WaitEvent>(random, schedule);
  if (!place) return false;
  const EventId event{static_cast<std::uint32_t>(random.between(0, schedule.event_count - 1))};
  schedule.streams[place->stream][place->step] = WaitEvent{event};
  return true;
}

bool add_a_wait(Random& random, Schedule& schedule) {
  if (schedule.event_count == 0) return false;
  StreamProgram& program = schedule.streams[random.between(0, schedule.streams.size() - 1)];
  const EventId event{static_cast<std::uint32_t>(random.between(0, schedule.event_count - 1))};
  program.insert(program.begin() + static_cast<std::ptrdiff_t>(random.between(0, program.size())),
                 WaitEvent{event});
  return true;
}

bool swap_two_steps(Random& random, Schedule& schedule) {
  StreamProgram& program = schedule.streams[random.between(0, schedule.streams.size() - 1)];
  if (program.size() < 2) return false;
  const std::size_t i = random.between(0, program.size() - 2);
  std::swap(program[i], program[i + 1]);
  return true;
}

bool run_a_task_twice(Random& random, Schedule& schedule) {
  const auto place = any_step<Run>(random, schedule);
  const Step again = schedule.streams[place->stream][place->step];
  schedule.streams[random.between(0, schedule.streams.size() - 1)].push_back(again);
  return true;
}

bool swap_two_launches(Random& random, Schedule& schedule) {
  auto& order = schedule.launch_order;
  if (order.size() < 2) return false;
  const std::size_t i = random.between(0, order.size() - 2);
  std::swap(order[i], order[random.chance(0.7) ? i + 1 : random.between(i + 1, order.size() - 1)]);
  return true;
}

bool shift_a_buffer(Random& random, Schedule& schedule) {
  MemoryPlan& memory = schedule.memory;
  if (memory.offsets.empty()) return false;
  std::uint64_t& offset = memory.offsets[random.between(0, memory.offsets.size() - 1)];
  if (random.chance(0.5)) {
    offset = memory.offsets[random.between(0, memory.offsets.size() - 1)];  // onto another
  } else {
    const std::uint64_t step = std::uint64_t{1} << random.between(0, 10);
    offset = random.chance(0.5) ? offset + step : offset - std::min(offset, step);
  }
  if (random.chance(0.5)) memory.arena_bytes += std::uint64_t{1} << 20;
  return true;
}

bool shrink_the_arena(Random& random, Schedule& schedule) {
  if (schedule.memory.arena_bytes == 0) return false;
  schedule.memory.arena_bytes -= random.between(1, schedule.memory.arena_bytes);
  return true;
}

// A plan has no wait to spare and no byte of arena, so that removing one always harms.
const Mutation kMutations[] = {
    {"nothing", [](Random&, Schedule&) { return true; }, true, false},
    {"a wait removed", remove_any<WaitEvent>, false},
    {"a record removed", remove_any<RecordEvent>, false},
    {"a task removed", remove_any<Run>, false},
    {"two tasks of a stream swapped", swap_two_tasks_of_a_stream},
    {"a task on another stream", move_a_task_to_another_stream},
    {"a wait for another event", wait_for_another_event},
    {"a wait added", add_a_wait},
    {"two steps swapped", swap_two_steps},
    {"a task run twice", run_a_task_twice, false},
    {"two launches swapped", swap_two_launches},
    {"a buffer shifted", shift_a_buffer},
    {"a smaller arena", shrink_the_arena, false},
};

// A change may undo or hide another: a wait becomes superfluous, an overlap goes unseen behind a deadlock.
bool several_changes(Random& random, Schedule& schedule) {
  for (std::uint64_t changes = random.between(2, 5); changes > 0; --changes) {
    constexpr std::size_t kHarmless = 1;  // "nothing"
    kMutations[random.between(kHarmless, std::size(kMutations) - 1)].mutate(random, schedule);
    if (schedule.streams.empty() || !any_step<Run>(random, schedule)) return false;
  }
  return true;
}

std::size_t count(const std::vector<Violation>& violations, Violation::Kind kind) {
  return static_cast<std::size_t>(std::ranges::count(violations, kind, &Violation::kind));
}

void expect_agreement(const TaskGraph& graph, const std::vector<BufferSpec>& buffers,
                      const Schedule& schedule, const Verdict& verdict) {
  const std::vector<Violation> violations = verify(graph, buffers, schedule);
  const std::string first = violations.empty() ? "" : violations.front().message;
  ASSERT_EQ(violations.empty(), verdict.right()) << first;
  if (!verdict.well_formed || verdict.deadlock) return;
  ASSERT_EQ(count(violations, Violation::Kind::kMissingOrder), verdict.missing_order.size()) << first;
  ASSERT_EQ(count(violations, Violation::Kind::kOverlap), verdict.overlaps.size()) << first;
  ASSERT_EQ(count(violations, Violation::Kind::kLaunchOrder) == 0, verdict.launch_order_is_possible) << first;
}

StreamLimit any_limit(Random& random) {
  return random.chance(0.5) ? StreamLimit::maximum() : StreamLimit::at_most(random.between(1, 4));
}

class VerifyMutations : public ::testing::TestWithParam<Mutation> {};

TEST_P(VerifyMutations, AgreeWithBruteForceOnWhetherTheScheduleIsStillRight) {
  const Mutation& mutation = GetParam();
  Random random(20);
  std::size_t right = 0, wrong = 0;
  for (int round = 0; round < 5000; ++round) {
    const Shape shape = kShapes[static_cast<std::size_t>(round) % kShapes.size()];
    const TaskGraph graph = random_graph(random, shape, random.between(2, 14));
    const std::vector<BufferSpec> buffers = random_buffers(random, graph);
    Schedule schedule = plan(graph, buffers, any_limit(random));
    if (!mutation.mutate(random, schedule)) continue;
    // Half of the time the launch order is made to fit again, so that it is not what gives the change away.
    if (random.chance(0.5)) schedule.launch_order = ScheduleOracle(graph, schedule).possible_launch_order();
    const Verdict verdict = ScheduleOracle(graph, schedule).judge(buffers);
    (verdict.right() ? right : wrong)++;
    SCOPED_TRACE(::testing::Message()
                 << "round " << round << ", " << name_of(shape) << ", " << mutation.name);
    expect_agreement(graph, buffers, schedule, verdict);
    if (HasFatalFailure()) return;
  }
  RecordProperty("still_right", static_cast<int>(right));
  RecordProperty("wrong", static_cast<int>(wrong));
  EXPECT_GT(right + wrong, 2000u) << "the mutation hardly ever applies";
  EXPECT_EQ(right > 0, mutation.can_be_harmless);
  EXPECT_EQ(wrong > 0, mutation.can_harm);
}

std::string test_name(const ::testing::TestParamInfo<Mutation>& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(One, VerifyMutations, ::testing::ValuesIn(kMutations), test_name);
INSTANTIATE_TEST_SUITE_P(Many, VerifyMutations,
                         ::testing::Values(Mutation{"several changes", several_changes}), test_name);

// Large enough that order has to be found in several sweeps.
TEST(VerifyLargeSchedules, AgreeWithBruteForce) {
  Random random(21);
  std::size_t wrong = 0;
  for (int round = 0; round < 60; ++round) {
    const Shape shape = kShapes[static_cast<std::size_t>(round) % kShapes.size()];
    const TaskGraph graph = random_graph(random, shape, random.between(500, 2000));
    const std::vector<BufferSpec> buffers = random_buffers(random, graph);
    Schedule schedule = plan(graph, buffers, any_limit(random));
    for (std::uint64_t waits = random.between(0, 2); waits > 0; --waits)
      remove_any<WaitEvent>(random, schedule);
    const Verdict verdict = ScheduleOracle(graph, schedule).judge(buffers);
    wrong += !verdict.right();
    SCOPED_TRACE(::testing::Message() << "round " << round << ", " << name_of(shape));
    expect_agreement(graph, buffers, schedule, verdict);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(wrong, 10u);
}

}  // namespace
}  // namespace nimble::testing
