// Runs the real nimble-plan, as a user would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <algorithm>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "nimble/core/files.h"
#include "nimble/core/json.h"
#include "nimble/core/verify.h"
#include "temporary_folder.h"

namespace nimble::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const fs::path kExamples = NIMBLE_EXAMPLE_GRAPHS;

struct Outcome {
  int status;  // negative if a signal ended it
  std::string out, err;
};

class NimblePlan : public ::testing::Test {
 protected:
  Outcome run(const std::vector<std::string>& arguments) const {
    std::string command = "cd " + quoted(folder.path()) + " && " + quoted(NIMBLE_PLAN);
    for (const std::string& argument : arguments) command += " " + quoted(argument);
    command += " >" + quoted(streams / "out") + " 2>" + quoted(streams / "err");
    const int result = std::system(command.c_str());
    return {WIFEXITED(result) ? WEXITSTATUS(result) : -1, read_file(streams / "out"),
            read_file(streams / "err")};
  }

  static std::string quoted(const std::string& text) { return "'" + text + "'"; }  // the tests use no quotes

  // Every refusal is one line on stderr, nothing on stdout, status 2, and no file that was not there before.
  void expect_refusal(const std::vector<std::string>& arguments, const std::string& message) const {
    SCOPED_TRACE(::testing::PrintToString(arguments));
    const auto before = folder.names();
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, AllOf(StartsWith("nimble-plan: "), HasSubstr(message), EndsWith("\n")));
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_EQ(folder.names(), before);
  }

  void write(const std::string& name, std::string_view text) const { write_file(folder / name, text); }
  static std::string example(const char* name) { return (kExamples / name).string(); }

  TemporaryFolder folder, streams;
};

TEST_F(NimblePlan, PrintsOneGraphInNumbers) {
  const Outcome outcome = run({example("inception_block.json")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* line :
       {"tasks                   15\n", "edges                   17, of which needed |E'| = 17\n",
        "matching                |M| = 11\n", "streams                 4\n", "syncs                   6\n",
        "degree of concurrency   4\n", "arena ", "time, lower bounds      critical path ",
        "time, predicted "})
    EXPECT_THAT(outcome.out, HasSubstr(line));
}

TEST_F(NimblePlan, PrintsSeveralGraphsAsATable) {
  const Outcome outcome = run({example("diamond.json"), example("nasnet_cell.json")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 3);
  EXPECT_THAT(outcome.out, AllOf(StartsWith("graph "), HasSubstr("\ndiamond "), HasSubstr("\nnasnet_cell ")));
}

TEST_F(NimblePlan, PrintsTheFiguresAsJson) {
  const Outcome outcome = run({example("inception_block.json"), example("diamond.json"), "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto report = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(report.size(), 2u);
  EXPECT_EQ(report[0]["graph"], "inception_block");
  EXPECT_EQ(report[0]["tasks"], 15);
  EXPECT_EQ(report[0]["matching"], 11);
  EXPECT_EQ(report[0]["streams"], 4);
  EXPECT_EQ(report[0]["syncs"], 6);
  EXPECT_LE(report[0]["critical_path_ns"], report[0]["predicted_ns"]);
  EXPECT_EQ(report[1]["graph"], "diamond");
}

TEST_F(NimblePlan, EveryExampleIsPlannedAndVerifiesWithAnyNumberOfStreams) {
  std::size_t examples = 0;
  for (const auto& entry : fs::directory_iterator(kExamples)) {
    if (entry.path().extension() != ".json") continue;
    ++examples;
    for (const char* limit : {"max", "1", "2", "1000"}) {
      SCOPED_TRACE(entry.path().string() + " --streams " + limit);
      Outcome outcome = run({entry.path().string(), "--streams", limit, "--out", "schedule.json"});
      ASSERT_EQ(outcome.status, 0) << outcome.err;
      outcome = run({"--verify", "schedule.json", entry.path().string()});
      EXPECT_EQ(outcome.status, 0) << outcome.err;
      EXPECT_EQ(outcome.out, "schedule.json: right\n");
    }
  }
  EXPECT_GT(examples, 0u);
}

TEST_F(NimblePlan, WritesScheduleAndPictures) {
  const std::string graph = example("diamond.json");
  const Outcome outcome =
      run({graph, "--out", "s.json", "--dot", "d.dot", "--trace", "t.json", "--svg", "p.svg"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(folder.names(), ElementsAre("d.dot", "p.svg", "s.json", "t.json"));
  const GraphFile file = graph_from_json(read_file(graph));
  EXPECT_EQ(schedule_from_json(read_file(folder / "s.json"), file), plan(file.graph, file.buffers));
  EXPECT_THAT(read_file(folder / "d.dot"), StartsWith("digraph"));
  EXPECT_TRUE(nlohmann::json::accept(read_file(folder / "t.json")));
  EXPECT_THAT(read_file(folder / "p.svg"),
              AllOf(StartsWith("<svg"), HasSubstr("diamond: 4 tasks on 2 streams")));
}

TEST_F(NimblePlan, WritesTheFilesOfSeveralGraphsIntoAFolder) {
  const Outcome outcome =
      run({example("diamond.json"), example("inception_block.json"), "--svg", "pictures"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(folder / "pictures" / "diamond.svg"));
  EXPECT_TRUE(fs::exists(folder / "pictures" / "inception_block.svg"));
  expect_refusal({example("diamond.json"), example("diamond.json"), "--svg", "p"}, "would be written twice");
}

TEST_F(NimblePlan, HelpShowsExamples) {
  const Outcome outcome = run({"--help"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("Examples:"), HasSubstr("--verify schedule.json net.json")));
}

TEST_F(NimblePlan, TellsItsVersion) {
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.out, ::testing::ContainsRegex("^[0-9]+\\.[0-9]+\\.[0-9]+\n$"));
}

TEST_F(NimblePlan, AWrongScheduleIsStatus1WithEachViolationOnItsOwnLine) {
  const GraphFile file = graph_from_json(read_file(example("diamond.json")));
  Schedule schedule = plan(file.graph, file.buffers);
  for (StreamProgram& program : schedule.streams)
    std::erase_if(program, [](const Step& step) { return std::holds_alternative<WaitEvent>(step); });
  schedule.memory.offsets.assign(file.buffers.size(), 0);
  write("wrong.json", to_json(schedule, file));
  const auto violations = verify(file.graph, file.buffers, schedule);
  ASSERT_GT(violations.size(), 2u);

  const Outcome outcome = run({"--verify", "wrong.json", example("diamond.json")});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "");
  std::string expected;
  for (const Violation& violation : violations) expected += violation.message + "\n";
  EXPECT_EQ(outcome.out, expected);
  EXPECT_THAT(outcome.out, HasSubstr("may start before 'stem'"));
}

TEST_F(NimblePlan, RefusesAScheduleForAnotherGraph) {
  ASSERT_EQ(run({example("diamond.json"), "--out", "s.json"}).status, 0);
  expect_refusal({"--verify", "s.json", example("nasnet_cell.json")},
                 "s.json: graph: this schedule was made for another");
}

TEST_F(NimblePlan, RefusesBadGraphsNamingFileAndPlace) {
  auto graph = [](const std::string& tasks, const std::string& rest = "") {
    return R"({"format": "nimble-graph", "version": 1, "tasks": [)" + tasks + "]" + rest + "}";
  };
  const std::pair<std::string, std::string> bad[] = {
      {"{\"format\":", "g.json: not valid JSON: parse error at line 1, column"},
      {"", "g.json: not valid JSON: parse error at line 1, column 1"},
      {"\xff\xfe\x01", "g.json: not valid JSON"},
      {graph(""), "g.json: tasks: a graph needs at least one task"},
      {graph(R"({"name": "a", "after": ["zz"]})"), "g.json: tasks[0].after[0]: there is no task 'zz'"},
      {graph(R"({"name": "a", "after": ["b"]}, {"name": "b", "after": ["a"]})"), "cycle: a -> b -> a"},
      {graph(R"({"name": "x\ny", "after": ["b"]}, {"name": "b", "after": ["x\ny"]})"), "cycle"},
      {graph(R"({"name": "a", "cost_ns": -1})"), "g.json: tasks[0].cost_ns: must be a whole number from 0"},
      {graph(R"({"name": "a", "cost_ns": 1e30})"), "g.json: tasks[0].cost_ns: must be a whole number from 0"},
      {graph(R"({"name": "a"}, {"name": "a"})"), "g.json: tasks[1].name: there is another task 'a'"},
      {graph(R"({"name": "a"})", R"(, "buffers": [{"name": "b", "bytes": -4, "uses": ["a"]}])"),
       "g.json: buffers[0].bytes: must be a whole number from 0"},
      {graph(R"({"name": "a"})", R"(, "buffers": [{"name": "b", "bytes": 4000000000000000000, "uses": ["a"]},
                                                  {"name": "c", "bytes": 4000000000000000000, "uses": ["a"]}])"),
       "g.json: buffers[1].bytes: the sizes up to here add up to more than"},
      {graph(R"({"name": 5})"), "g.json: tasks[0].name: must be a string, not 5"},
      {graph("{}"), "g.json: tasks[0]: has no member 'name'"},
      {R"({"format": "nimble-graph", "version": 99, "tasks": []})",
       "g.json: version: this Nimble reads version 1"},
  };
  for (const auto& [text, message] : bad) {
    write("g.json", text);
    expect_refusal({"g.json", "--out", "s.json", "--svg", "p.svg"}, message);
  }
}

TEST_F(NimblePlan, TellsAScheduleThatIsGivenForAGraphAndTheOtherWayRound) {
  ASSERT_EQ(run({example("diamond.json"), "--out", "s.json"}).status, 0);
  expect_refusal({"s.json"}, "s.json: format: must be 'nimble-graph', not 'nimble-schedule'");
  expect_refusal({"--verify", example("diamond.json"), example("diamond.json")},
                 "diamond.json: format: must be 'nimble-schedule', not 'nimble-graph'");
}

TEST_F(NimblePlan, NamesThePlaceOfAMemberThatIsGivenTwice) {
  const std::string begin = R"({"format": "nimble-graph", "version": 1, "tasks": [{"name": "a"}, )";
  write("g.json", begin + R"({"name": "b", "after": ["a"], "name": "c"}]})");
  expect_refusal({"g.json"}, "g.json: tasks[1].name: is given twice");
  write("g.json", begin + R"({"name": "b"}], "tasks": []})");
  expect_refusal({"g.json"}, "g.json: tasks: is given twice");
}

TEST_F(NimblePlan, RefusesBadSchedules) {
  ASSERT_EQ(run({example("diamond.json"), "--out", "s.json"}).status, 0);
  const std::string right = read_file(folder / "s.json");
  const std::pair<std::string, std::string> changes[] = {
      {"\"run\":\"stem\"", "\"run\":\"root\""},
      {"\"wait\":", "\"wait\":-"},
      {"\"event_count\": ", "\"event_count\": 1e"},
      {"\"arena_bytes\": ", "\"arena_bytes\": 99999999999999999999"}};
  for (const auto& [from, to] : changes) {
    std::string wrong = right;
    ASSERT_NE(wrong.find(from), std::string::npos);
    write("s.json", wrong.replace(wrong.find(from), from.size(), to));
    expect_refusal({"--verify", "s.json", example("diamond.json")}, "[nimble::schedule_from_json] s.json: ");
  }
  write("s.json", right.substr(0, right.size() / 2));
  expect_refusal({"--verify", "s.json", example("diamond.json")},
                 "s.json: not valid JSON: parse error at line");
}

TEST_F(NimblePlan, RefusesFilesThatCannotBeReadOrWritten) {
  expect_refusal({"none.json"}, "none.json: No such file or directory");
  expect_refusal({"."}, ".: is a directory");
  expect_refusal({"--verify", "none.json", example("diamond.json")}, "none.json: No such file or directory");
  expect_refusal({example("diamond.json"), "--out", "no/such/folder.json"}, "No such file or directory");
  fs::create_directory(folder / "taken");
  expect_refusal({example("diamond.json"), "--svg", "taken"}, "taken: is a directory");
  expect_refusal({example("diamond.json"), "--out", "/dev/full"}, "No space left on device");
  write("file", "old");
  expect_refusal({example("diamond.json"), example("nasnet_cell.json"), "--out", "file", "--svg", "folder"},
                 "file: Not a directory; of several graphs, the files go into a folder");
}

TEST_F(NimblePlan, NoticesThatItsReportCannotBePrinted) {
  const std::string command =
      std::string(NIMBLE_PLAN) + " " + example("diamond.json") + " >/dev/full 2>/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 2);
}

TEST_F(NimblePlan, AFailedPlanLeavesTheOldFile) {
  write("s.json", "old");
  write("g.json", "{");
  expect_refusal({"g.json", "--out", "s.json"}, "not valid JSON");
  EXPECT_EQ(read_file(folder / "s.json"), "old");
}

TEST_F(NimblePlan, RefusesACommandLineItDoesNotUnderstand) {
  expect_refusal({}, "graph is required");
  expect_refusal({"--frobnicate", example("diamond.json")}, "--frobnicate");
  for (const char* limit : {"0", "-1", "many", "", "1.5", "99999999999999999999", "2x"})
    expect_refusal({example("diamond.json"), std::string("--streams=") + limit}, "--streams");
  expect_refusal({"--verify", "s.json", example("diamond.json"), example("nasnet_cell.json")},
                 "exactly one graph");
  expect_refusal({"--verify", "s.json", example("diamond.json"), "--streams", "3"}, "excludes");
  expect_refusal({"--verify", "s.json", example("diamond.json"), "--out", "t.json"}, "excludes");
}

}  // namespace
}  // namespace nimble::testing
