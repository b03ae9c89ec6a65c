#include "nimble/core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nimble/core/error.h"
#include "nimble/core/files.h"
#include "nimble/core/verify.h"
#include "random_graphs.h"
#include "steps.h"

namespace nimble::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::string_view kGraph = R"({"format": "nimble-graph", "version": 1,
"tasks": [
  {"name": "a", "cost_ns": 5},
  {"name": "b", "after": ["a"]}
],
"buffers": [
  {"name": "x", "bytes": 64, "alignment": 16, "uses": ["a", "b"]}
]})";

// `text` with its first `from` replaced.
std::string with(std::string_view text, std::string_view from, std::string_view to) {
  std::string changed(text);
  const std::size_t at = changed.find(from);
  EXPECT_NE(at, std::string::npos) << "nothing to replace: " << from;
  return changed.replace(at, from.size(), to);
}

template <class Read>
std::string refusal(Read read) {
  try {
    read();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(GraphJson, IsReadAsWritten) {
  const GraphFile file = graph_from_json(kGraph);
  ASSERT_EQ(file.graph.task_count(), 2u);
  EXPECT_EQ(file.graph.name(TaskId{1}), "b");
  EXPECT_EQ(file.graph.cost(TaskId{0}), 5);
  EXPECT_EQ(file.graph.cost(TaskId{1}), std::nullopt);
  EXPECT_THAT(file.graph.predecessors(TaskId{1}), ::testing::ElementsAre(TaskId{0}));
  EXPECT_THAT(file.buffers, ::testing::ElementsAre(BufferSpec{"x", 64, 16, {TaskId{0}, TaskId{1}}}));
}

TEST(GraphJson, TasksMayComeInAnyOrderAndBuffersMayBeLeftOut) {
  const GraphFile file = graph_from_json(
      R"({"format": "nimble-graph", "version": 1, "tasks": [{"name": "b", "after": ["a"]}, {"name": "a"}]})");
  EXPECT_THAT(file.graph.successors(TaskId{1}), ::testing::ElementsAre(TaskId{0}));
  EXPECT_TRUE(file.buffers.empty());
}

TEST(Json, WritingAndReadingBackGivesAnEqualValue) {
  Random random(30);
  for (int round = 0; round < 300; ++round) {
    const Shape shape = kShapes[static_cast<std::size_t>(round) % kShapes.size()];
    GraphFile file{random_graph(random, shape, random.between(1, 40)), {}};
    file.buffers = random_buffers(random, file.graph);
    EXPECT_EQ(graph_from_json(to_json(file)), file);
    const Schedule schedule =
        plan(file.graph, file.buffers, random.chance(0.5) ? StreamLimit{} : StreamLimit{2});
    EXPECT_EQ(schedule_from_json(to_json(schedule, file), file), schedule);
  }
}

TEST(Json, NamesMayHoldAnyText) {
  TaskGraphBuilder builder;
  const TaskId task = builder.add_task("\"quotes\" \\ back\nnew line \t \x01 größer 日本 🙂");
  const GraphFile file{std::move(builder).build(), {{"{}[]:,", 8, 8, {task}}}};
  EXPECT_EQ(graph_from_json(to_json(file)), file);
  const Schedule schedule = plan(file.graph, file.buffers);
  EXPECT_EQ(schedule_from_json(to_json(schedule, file), file), schedule);
}

TEST(Json, TheExamplesInTheDocumentationAreRight) {
  const std::string page = read_file(NIMBLE_FORMATS_PAGE);
  auto example = [&](std::string_view format) {
    const std::size_t begin = page.find("{\"format\": \"" + std::string(format));
    EXPECT_NE(begin, std::string::npos);
    return page.substr(begin, page.find("```", begin) - begin);
  };
  const GraphFile file = graph_from_json(example("nimble-graph"));
  const Schedule schedule = schedule_from_json(example("nimble-schedule"), file);
  EXPECT_THAT(verify(file.graph, file.buffers, schedule), ::testing::IsEmpty());
}

TEST(Fingerprint, ChangesWithEverythingThatDecidesWhetherAScheduleIsRight) {
  const std::string original = fingerprint(graph_from_json(kGraph));
  auto changed = [&](std::string_view from, std::string_view to) {
    return fingerprint(graph_from_json(with(kGraph, from, to)));
  };
  EXPECT_NE(changed(R"("after": ["a"])", R"("after": [])"), original);
  EXPECT_NE(changed(R"("bytes": 64)", R"("bytes": 65)"), original);
  EXPECT_NE(changed(R"("alignment": 16)", R"("alignment": 32)"), original);
  EXPECT_NE(changed(R"("uses": ["a", "b"])", R"("uses": ["a"])"), original);
  EXPECT_NE(changed(R"("name": "x")", R"("name": "y")"), original);
  EXPECT_EQ(changed(R"("cost_ns": 5)", R"("cost_ns": 6)"), original) << "costs may be measured again";
}

struct Refusal {
  std::string from, to;  // what is changed in a file that is right
  std::string message;
};

class GraphJsonRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(GraphJsonRefuses, WithWhatIsWrongAndWhere) {
  const auto& [from, to, message] = GetParam();
  const std::string refused =
      refusal([&, &from = from, &to = to] { graph_from_json(with(kGraph, from, to), "net.json"); });
  EXPECT_THAT(refused, AllOf(StartsWith("[nimble::graph_from_json] net.json: "), HasSubstr(message)));
  EXPECT_THAT(refused, Not(HasSubstr("\n")));
}

INSTANTIATE_TEST_SUITE_P(
    All, GraphJsonRefuses,
    ::testing::Values(
        Refusal{"\n]}", "\n]", "not valid JSON: parse error at line 8, column 2"},
        Refusal{R"("version": 1)", R"("version": 2)", "version: this Nimble reads version 1 only"},
        Refusal{R"("version": 1)", R"("version": "1")", "version: must be a whole number"},
        Refusal{R"("version": 1,)", "", "the document has no member 'version'"},
        Refusal{"nimble-graph", "nimble-schedule", "format: must be 'nimble-graph', not 'nimble-schedule'"},
        Refusal{R"("tasks")", R"("tusks")", "the document has an unknown member 'tusks'"},
        Refusal{R"("cost_ns": 5)", R"("cost": 5)", "tasks[0]: has an unknown member 'cost'"},
        Refusal{R"("cost_ns": 5)", R"("cost_ns": 5, "cost_ns": 6)", "tasks[0].cost_ns: is given twice"},
        Refusal{R"("cost_ns": 5)", R"("cost_ns": -5)", "tasks[0].cost_ns: must be a whole number from 0 to"},
        Refusal{R"("cost_ns": 5)", R"("cost_ns": 1.5)", "tasks[0].cost_ns: must be a whole number from 0 to"},
        Refusal{R"("cost_ns": 5)", R"("cost_ns": 99999999999999999999)",
                "tasks[0].cost_ns: must be a whole number"},
        Refusal{R"("cost_ns": 5)", R"("cost_ns": 9223372036854775807)", "tasks[0].cost_ns: must be at most"},
        Refusal{R"("cost_ns": 5)", R"("cost_ns": null)", "tasks[0].cost_ns: must be a whole number"},
        Refusal{R"({"name": "b")", R"({"name": "b", "cost_ns": 1000000000000000000)",
                "tasks[1].cost_ns: the costs up to here add up to more than"},
        Refusal{R"("name": "b")", R"("name": "a")", "tasks[1].name: there is another task 'a'"},
        Refusal{R"("name": "b")", R"("name": "")", "tasks[1].name: must not be empty"},
        Refusal{R"("name": "b")", R"("name": 7)", "tasks[1].name: must be a string, not 7"},
        Refusal{R"({"name": "b", "after": ["a"]})", "[]", "tasks[1]: must be an object, not array"},
        Refusal{R"("after": ["a"])", R"("after": "a")", "tasks[1].after: must be an array, not 'a'"},
        Refusal{R"("after": ["a"])", R"("after": ["q\n"])", "tasks[1].after[0]: there is no task 'q\\x0a'"},
        Refusal{R"("after": ["a"])", R"("after": ["b"])",
                "tasks[1].after[0]: a task cannot come after itself"},
        Refusal{R"("cost_ns": 5)", R"("after": ["b"])", "cycle: a -> b -> a"},
        Refusal{R"("bytes": 64)", R"("bytes": -1)", "buffers[0].bytes: must be a whole number from 0 to"},
        Refusal{R"("bytes": 64)", R"("bytes": 18446744073709551615)", "buffers[0].bytes: must be at most"},
        Refusal{R"("bytes": 64)", R"("bytes": 4611686018427387904)",
                "buffers[0].bytes: the sizes up to here add up"},
        Refusal{R"("bytes": 64, )", "", "buffers[0]: has no member 'bytes'"},
        Refusal{R"("alignment": 16)", R"("alignment": 0)", "buffers[0].alignment: must be a power of two"},
        Refusal{R"("alignment": 16)", R"("alignment": 24)", "buffers[0].alignment: must be a power of two"},
        Refusal{R"("uses": ["a", "b"])", R"("uses": [])",
                "buffers[0].uses: a buffer needs at least one task"},
        Refusal{R"("uses": ["a", "b"])", R"("uses": ["a", "a"])", "buffers[0].uses[1]: 'a' is listed twice"},
        Refusal{R"("uses": ["a", "b"])", R"("uses": ["a", "c"])", "buffers[0].uses[1]: there is no task 'c'"},
        Refusal{R"("buffers": [)", R"("buffers": [{"name": "x", "bytes": 1, "uses": ["a"]},)",
                "buffers[1].name: there is another buffer 'x'"}));

TEST(GraphJson, RefusesDocumentsThatAreNoGraphAtAll) {
  auto refused = [](std::string_view text) { return refusal([&] { graph_from_json(text); }); };
  EXPECT_THAT(refused(""), HasSubstr("not valid JSON: parse error at line 1, column 1"));
  EXPECT_THAT(refused("\xff\xfe"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused("[]"), HasSubstr("the document must be an object, not array"));
  EXPECT_THAT(refused("{} {}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused(R"({"format": "nimble-graph", "version": 1, "tasks": []})"),
              HasSubstr("tasks: a graph needs at least one task"));
  EXPECT_THAT(refused(std::string(100'000, '[')), HasSubstr("not valid JSON"));
  EXPECT_LT(refused('"' + std::string(100'000, 'a')).size(), 400u) << "messages stay short";
}

class ScheduleJsonRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(ScheduleJsonRefuses, WithWhatIsWrongAndWhere) {
  // On two streams, so that there are events.
  const GraphFile file = graph_from_json(kGraph);
  Schedule schedule;
  schedule.streams = {{run(TaskId{0}), record(EventId{0})}, {wait(EventId{0}), run(TaskId{1})}};
  schedule.launch_order = {TaskId{0}, TaskId{1}};
  schedule.event_count = 1;
  schedule.memory = {.offsets = {0}, .arena_bytes = 64, .lower_bound = 64};
  const std::string text = to_json(schedule, file);

  const auto& [from, to, message] = GetParam();
  const std::string refused =
      refusal([&, &from = from, &to = to] { schedule_from_json(with(text, from, to), file, "plan.json"); });
  EXPECT_THAT(refused, AllOf(StartsWith("[nimble::schedule_from_json] plan.json: "), HasSubstr(message)));
}

INSTANTIATE_TEST_SUITE_P(
    All, ScheduleJsonRefuses,
    ::testing::Values(
        Refusal{"}}\n", "}", "not valid JSON: parse error at line"},
        Refusal{R"("graph": ")", R"("graph": "0)", "graph: this schedule was made for another graph"},
        Refusal{R"("event_count": 1)", R"("event_count": -1)", "event_count: must be a whole number"},
        Refusal{R"({"run":"b"})", R"({"run":"c"})", "streams[1][1].run: the graph has no task 'c'"},
        Refusal{R"({"run":"b"})", R"({"run":1})", "streams[1][1].run: must be a string, not 1"},
        Refusal{R"({"run":"b"})", "{}", "streams[1][1]: must have exactly one of 'run', 'record' and 'wait'"},
        Refusal{R"({"run":"b"})", R"({"run":"b","wait":0})", "streams[1][1]: must have exactly one of"},
        Refusal{R"({"run":"b"})", R"({"sleep":1})", "streams[1][1]: has an unknown member 'sleep'"},
        Refusal{R"({"wait":0})", R"({"wait":4294967296})", "streams[1][0].wait: must be at most 4294967295"},
        Refusal{R"(["a","b"])", R"(["a","c"])", "launch_order[1]: the graph has no task 'c'"},
        Refusal{R"(["a","b"])", R"({})", "launch_order: must be an array, not object"},
        Refusal{R"("arena_bytes": 64)", R"("arena_bytes": 1e3)",
                "memory.arena_bytes: must be a whole number"},
        Refusal{R"("buffer":"x")", R"("buffer":"z")",
                "memory.offsets[0].buffer: the graph has no buffer 'z'"},
        Refusal{R"({"buffer":"x","offset":0})", "", "memory.offsets: there is no offset for buffer 'x'"},
        Refusal{R"({"buffer":"x","offset":0})", R"({"buffer":"x","offset":0},{"buffer":"x","offset":0})",
                "memory.offsets[1].buffer: 'x' has two offsets"},
        Refusal{R"("offset":0)", R"("offset":18446744073709551616)",
                "memory.offsets[0].offset: must be a whole"}));

}  // namespace
}  // namespace nimble::testing
