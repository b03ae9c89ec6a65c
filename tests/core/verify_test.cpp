#include "nimble/core/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ostream>

#include "nimble/core/error.h"
#include "steps.h"

namespace nimble {

// Found by GoogleTest when an expectation fails.
void PrintTo(const Violation& violation, std::ostream* out) { *out << violation.message; }

namespace testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Kind = Violation::Kind;

MATCHER_P2(Is, kind, message, "") { return arg.kind == kind && ::testing::Matches(message)(arg.message); }

//        ┌─▶ left ──┐
//   stem ┤          ├─▶ join      stream 0: stem left join, stream 1: right
//        └─▶ right ─┘
class VerifyDiamond : public ::testing::Test {
 protected:
  static constexpr TaskId stem{0}, left{1}, right{2}, join{3};
  static constexpr EventId stem_done{0}, right_done{1};

  VerifyDiamond() {
    TaskGraphBuilder builder;
    for (const char* name : {"stem", "left", "right", "join"}) builder.add_task(name);
    builder.add_edge(stem, left);
    builder.add_edge(stem, right);
    builder.add_edge(left, join);
    builder.add_edge(right, join);
    graph = std::move(builder).build();

    buffers = {{"x", 64, 64, {stem, left, right}},
               {"l", 64, 64, {left, join}},
               {"r", 64, 64, {right, join}},
               {"y", 64, 64, {join}}};
    schedule.streams = {{run(stem), record(stem_done), run(left), wait(right_done), run(join)},
                        {wait(stem_done), run(right), record(right_done)}};
    schedule.launch_order = {stem, left, right, join};
    schedule.event_count = 2;
    schedule.memory = {
        .offsets = {0, 64, 128, 0}, .arena_bytes = 192, .lower_bound = 192};  // y reuses x's bytes
  }

  std::vector<Violation> violations() const { return verify(graph, buffers, schedule); }

  TaskGraph graph;
  std::vector<BufferSpec> buffers;
  Schedule schedule;
};

TEST_F(VerifyDiamond, AcceptsARightSchedule) { EXPECT_THAT(violations(), IsEmpty()); }

TEST_F(VerifyDiamond, ReportsAnEdgeThatNothingOrders) {
  schedule.streams[1] = {run(right), record(right_done)};  // no longer waits for stem
  EXPECT_THAT(violations(),
              ElementsAre(Is(Kind::kMissingOrder,
                             "'right' on stream 1 may start before 'stem' on stream 0 has finished")));
}

TEST_F(VerifyDiamond, AcceptsOrderThatFollowsFromOtherWaits) {
  // right is ordered after stem through left, so join's own wait also covers it.
  schedule.streams = {{run(stem), run(left), record(stem_done), wait(right_done), run(join)},
                      {wait(stem_done), run(right), record(right_done)}};
  EXPECT_THAT(violations(), IsEmpty());
}

TEST_F(VerifyDiamond, AcceptsAnEventThatOnlyPassesOnAWait) {
  // Stream 2 runs nothing: it waits for stem and for nothing else, and records that under another event.
  schedule.streams[1].front() = wait(EventId{2});
  schedule.streams.push_back({wait(stem_done), wait(stem_done), record(EventId{2})});
  schedule.event_count = 3;
  EXPECT_THAT(violations(), IsEmpty());
}

TEST_F(VerifyDiamond, AnEventRecordedBeforeATaskDoesNotCoverIt) {
  schedule.streams[0] = {record(stem_done), run(stem), run(left), wait(right_done), run(join)};
  EXPECT_THAT(violations(),
              ElementsAre(Is(Kind::kMissingOrder, HasSubstr("'right' on stream 1 may start before"))));
}

TEST_F(VerifyDiamond, ReportsATaskThatNeverRuns) {
  schedule.streams[1] = {wait(stem_done), record(right_done)};
  EXPECT_THAT(violations(), ElementsAre(Is(Kind::kTaskMissing, "'right' runs on no stream")));
}

TEST_F(VerifyDiamond, ReportsATaskThatRunsTwice) {
  schedule.streams[1].push_back(run(left));
  EXPECT_THAT(violations(),
              ElementsAre(Is(Kind::kTaskRepeated, "'left' runs twice: on stream 0 and on stream 1")));
}

TEST_F(VerifyDiamond, ReportsTasksAndEventsThatDoNotExist) {
  schedule.streams[1].push_back(run(TaskId{9}));
  schedule.streams[1].push_back(record(EventId{7}));
  schedule.launch_order.push_back(TaskId{8});
  EXPECT_THAT(violations(),
              UnorderedElementsAre(Is(Kind::kUnknownTask, HasSubstr("stream 1 runs task 9")),
                                   Is(Kind::kUnknownTask, HasSubstr("the launch order names task 8")),
                                   Is(Kind::kUnknownEvent, HasSubstr("stream 1 records event 7"))));
}

TEST_F(VerifyDiamond, ReportsAnEventRecordedTwice) {
  schedule.streams[0].push_back(record(right_done));
  EXPECT_THAT(violations(), ElementsAre(Is(Kind::kEventRecordedTwice, HasSubstr("event 1"))));
}

TEST_F(VerifyDiamond, ReportsEveryStreamOfADeadlock) {
  schedule.streams[0] = {wait(right_done), run(stem), record(stem_done), run(left), run(join)};
  EXPECT_THAT(violations(),
              ElementsAre(Is(Kind::kDeadlock,
                             "stream 0 waits for ever before 'stem': event 1, which stream 1 cannot "
                             "come to record"),
                          Is(Kind::kDeadlock,
                             "stream 1 waits for ever before 'right': event 0, which stream 0 cannot "
                             "come to record")));
}

TEST_F(VerifyDiamond, ReportsAWaitForAnEventThatNothingRecords) {
  schedule.streams[1].pop_back();
  EXPECT_THAT(violations(), ElementsAre(Is(Kind::kDeadlock, HasSubstr("event 1, which nothing records"))));
}

TEST_F(VerifyDiamond, ReportsAStreamThatWaitsForItself) {
  schedule.streams[1] = {wait(right_done), run(right), record(right_done)};
  EXPECT_THAT(violations(), UnorderedElementsAre(Is(Kind::kDeadlock, HasSubstr("stream 1 waits for ever")),
                                                 Is(Kind::kDeadlock, HasSubstr("stream 0 waits for ever"))));
}

TEST_F(VerifyDiamond, ReportsALaunchOrderThatTheGraphForbids) {
  schedule.launch_order = {stem, left, join, right};
  EXPECT_THAT(violations(),
              ElementsAre(Is(Kind::kLaunchOrder, "'join' is launched before 'right', which it comes after")));
}

TEST_F(VerifyDiamond, ReportsALaunchOrderThatOnlyTheStreamsForbid) {
  schedule.streams = {{run(stem), run(left), run(right), run(join)}};
  schedule.event_count = 0;
  schedule.launch_order = {stem, right, left, join};  // the graph would allow it
  EXPECT_THAT(violations(),
              ElementsAre(Is(Kind::kLaunchOrder, "'right' is launched before 'left', which it comes after")));
}

TEST_F(VerifyDiamond, ReportsTasksThatAreNotLaunchedExactlyOnce) {
  schedule.launch_order = {stem, left, right, right};
  EXPECT_THAT(violations(),
              UnorderedElementsAre(Is(Kind::kTaskRepeated, "'right' is in the launch order twice"),
                                   Is(Kind::kTaskMissing, "'join' is not in the launch order")));
}

TEST_F(VerifyDiamond, ReportsBuffersThatShareBytesWhileInUse) {
  schedule.memory.offsets[2] = 64;  // r onto l
  EXPECT_THAT(violations(),
              ElementsAre(Is(Kind::kOverlap,
                             "buffers 'l' and 'r' share bytes from 64 on and may be in use together")));
}

TEST_F(VerifyDiamond, ReportsAllBuffersOfACollision) {
  schedule.memory.offsets = {0, 0, 0, 0};
  EXPECT_THAT(violations(), UnorderedElementsAre(Is(Kind::kOverlap, HasSubstr("'x' and 'l'")),
                                                 Is(Kind::kOverlap, HasSubstr("'x' and 'r'")),
                                                 Is(Kind::kOverlap, HasSubstr("'l' and 'r'")),
                                                 Is(Kind::kOverlap, HasSubstr("'l' and 'y'")),
                                                 Is(Kind::kOverlap, HasSubstr("'r' and 'y'"))));
}

TEST_F(VerifyDiamond, BuffersThatTouchOrHoldNothingDoNotOverlap) {
  buffers[2].bytes = 0;
  schedule.memory.offsets = {0, 64, 64, 0};
  EXPECT_THAT(violations(), IsEmpty());
}

TEST_F(VerifyDiamond, ReportsBuffersOutsideTheArenaAndMisaligned) {
  schedule.memory.offsets[2] = 130;
  EXPECT_THAT(violations(),
              UnorderedElementsAre(Is(Kind::kOutsideArena, AllOf(HasSubstr("'r'"), HasSubstr("192"))),
                                   Is(Kind::kMisaligned, AllOf(HasSubstr("'r'"), HasSubstr("130")))));
}

TEST_F(VerifyDiamond, SurvivesAddressesThatOverflow) {
  schedule.memory.offsets[2] = ~std::uint64_t{63};
  schedule.memory.arena_bytes = ~std::uint64_t{0};
  EXPECT_THAT(violations(), ElementsAre(Is(Kind::kOutsideArena, HasSubstr("'r'"))));
}

TEST_F(VerifyDiamond, ReportsAWrongNumberOfOffsets) {
  schedule.memory.offsets.pop_back();
  EXPECT_THAT(violations(), ElementsAre(Is(Kind::kWrongShape, "3 offsets for 4 buffers")));
}

TEST_F(VerifyDiamond, ReportsAnAbsurdNumberOfEventsWithoutAllocatingThem) {
  schedule.event_count = std::size_t{1} << 60;
  EXPECT_THAT(violations(),
              ElementsAre(Is(Kind::kWrongShape, HasSubstr("claims 1152921504606846976 events"))));
}

TEST_F(VerifyDiamond, NamesStayOnOneLine) {
  TaskGraphBuilder builder;
  builder.add_task("two\nlines");
  EXPECT_THAT(verify(std::move(builder).build(), {}, Schedule{}),
              ElementsAre(Is(Kind::kTaskMissing, "'two\\x0alines' runs on no stream"),
                          Is(Kind::kTaskMissing, "'two\\x0alines' is not in the launch order")));
}

TEST_F(VerifyDiamond, OrThrowNamesTheFirstViolations) {
  EXPECT_NO_THROW(verify_or_throw(graph, buffers, schedule));
  schedule.memory.offsets = {0, 0, 0, 0};
  try {
    verify_or_throw(graph, buffers, schedule);
    FAIL() << "accepted a wrong schedule";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("[nimble::verify] the schedule is wrong: buffers 'x' and 'l'"),
                                    HasSubstr("; and 2 more")));
  }
}

TEST(Verify, AcceptsTheEmptySchedule) { EXPECT_THAT(verify(TaskGraph(), {}, Schedule()), IsEmpty()); }

}  // namespace
}  // namespace testing
}  // namespace nimble
