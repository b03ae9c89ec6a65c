// The exports that people look at: Graphviz, Perfetto, SVG.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include <nlohmann/json.hpp>

#include "nimble/core/dot.h"
#include "nimble/core/svg.h"
#include "nimble/core/trace.h"
#include "steps.h"

namespace nimble::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::size_t count(std::string_view text, std::string_view word) {
  std::size_t n = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

//        ┌─▶ left ──┐
//   stem ┤          ├─▶ join      stream 0: stem left join, stream 1: right
//        └─▶ right ─┘
class Pictures : public ::testing::Test {
 protected:
  static constexpr TaskId stem{0}, left{1}, right{2}, join{3};

  Pictures() {
    TaskGraphBuilder builder;
    for (const char* name : {"stem", "left \"<&>\" \\", "right", "join"}) builder.add_task(name, 1000);
    builder.add_edge(stem, left);
    builder.add_edge(stem, right);
    builder.add_edge(left, join);
    builder.add_edge(right, join);
    graph = std::move(builder).build();
    schedule.streams = {{run(stem), record(EventId{0}), run(left), wait(EventId{1}), run(join)},
                        {wait(EventId{0}), run(right), record(EventId{1})}};
    schedule.launch_order = {stem, left, right, join};
    schedule.event_count = 2;
    timeline = simulate(graph, schedule, {.node_cost = 0, .sync_cost = 500});
  }

  TaskGraph graph;
  Schedule schedule;
  Simulation timeline;
};

TEST_F(Pictures, DotDrawsStreamOrderSolidAndWaitsDashed) {
  const std::string dot = to_dot(graph, schedule);
  EXPECT_THAT(dot, HasSubstr("t0 -> t1;"));
  EXPECT_THAT(dot, HasSubstr("t1 -> t3;"));
  EXPECT_THAT(dot, HasSubstr("t0 -> t2 [style=dashed];"));
  EXPECT_THAT(dot, HasSubstr("t2 -> t3 [style=dashed];"));
  EXPECT_EQ(count(dot, " -> "), 4u);
  EXPECT_THAT(dot, HasSubstr(R"(label="left \"<&>\" \\")"));
}

TEST_F(Pictures, TraceHasATrackForEachStreamASliceForEachTaskAndAnArrowForEachWait) {
  const auto trace = nlohmann::json::parse(to_trace(graph, schedule, timeline));
  std::map<std::string, int> phases;
  for (const auto& event : trace["traceEvents"]) ++phases[event["ph"]];
  EXPECT_EQ(phases, (std::map<std::string, int>{{"M", 2}, {"X", 4}, {"s", 2}, {"f", 2}}));
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["name"] == "right") {
      EXPECT_EQ(event["tid"], 1);
      EXPECT_EQ(event["ts"], 1.5) << "microseconds: stem and a sync";
      EXPECT_EQ(event["dur"], 1.0);
    }
}

TEST_F(Pictures, TraceArrowsTouchTheSlicesTheyJoin) {
  const auto trace = nlohmann::json::parse(to_trace(graph, schedule, timeline));
  auto inside_a_slice = [&](const auto& arrow) {
    for (const auto& slice : trace["traceEvents"])
      if (slice["ph"] == "X" && slice["tid"] == arrow["tid"] && slice["ts"] <= arrow["ts"] &&
          arrow["ts"].template get<double>() <
              slice["ts"].template get<double>() + slice["dur"].template get<double>())
        return true;
    return false;
  };
  std::size_t ends = 0;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "s" || event["ph"] == "f") {
      ++ends;
      EXPECT_TRUE(inside_a_slice(event)) << event;
    }
  EXPECT_EQ(ends, 4u);
}

TEST_F(Pictures, SvgHasABoxForEachTaskAndAnArrowForEachWait) {
  const std::string svg = to_svg(graph, schedule, timeline, "<title>");
  EXPECT_EQ(count(svg, "<title>"), 4u);
  EXPECT_EQ(count(svg, "class=\"wait\""), 2u);
  EXPECT_EQ(count(svg, ">stream "), 2u);
  EXPECT_THAT(svg, HasSubstr("&lt;title&gt;"));
  EXPECT_THAT(svg, HasSubstr("left &quot;&lt;&amp;&gt;&quot; \\: 1 us to 2 us on stream 0"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
}

TEST_F(Pictures, SvgShortensNamesThatDoNotFitBetweenCharacters) {
  TaskGraphBuilder builder;
  builder.add_task("block.conv", 500);
  builder.add_task("größergrößergrößergrößergrößergrößer", 500);
  builder.add_task("long", 8000);
  const TaskGraph names = std::move(builder).build();
  const Schedule one = plan(names, {}, StreamLimit::at_most(1));
  const std::string svg = to_svg(names, one, simulate(names, one, {.node_cost = 0}));
  EXPECT_THAT(svg, HasSubstr(">conv</text>")) << "the last part of a name says most";
  EXPECT_THAT(svg, HasSubstr(">größe…</text>"));
  EXPECT_THAT(svg, HasSubstr(">long</text>"));
}

TEST_F(Pictures, SvgOfInstantTasksIsStillAPicture) {
  TaskGraphBuilder builder;
  builder.add_task("instant", 0);
  const TaskGraph instant = std::move(builder).build();
  const Schedule one = plan(instant, {});
  const std::string svg = to_svg(instant, one, simulate(instant, one, {.node_cost = 0}));
  EXPECT_THAT(svg, HasSubstr("instant: 0 us to 0 us"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace nimble::testing
