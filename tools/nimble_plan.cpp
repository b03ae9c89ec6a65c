// The scheduling core on the command line. Exit status: 0 if all went well, 1 if a schedule is wrong, 2 if
// the input or the command line is.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "nimble/core/dot.h"
#include "nimble/core/error.h"
#include "nimble/core/files.h"
#include "nimble/core/json.h"
#include "nimble/core/simulate.h"
#include "nimble/core/svg.h"
#include "nimble/core/trace.h"
#include "nimble/core/verify.h"
#include "report.h"

namespace fs = std::filesystem;
using namespace nimble;

namespace {

constexpr const char* kExamples = R"(Examples:
  nimble-plan net.json                                 plan with as many streams as the graph can use
  nimble-plan net.json --streams 4 --svg timeline.svg  at most four streams; draw the predicted timeline
  nimble-plan net.json --out schedule.json             keep the schedule ...
  nimble-plan --verify schedule.json net.json          ... and check it later
  nimble-plan graphs/*.json --svg pictures             a table; pictures/<graph>.svg for each
  nimble-plan graphs/*.json --json                     the figures for machines

Of several graphs, --out, --dot, --trace and --svg name a folder; the files in it are named after the graphs.
The file formats are described in docs/formats.md. Exit status: 0 if all went well, 1 if a schedule is wrong
(each violation on its own line), 2 if the input or the command line is.)";

struct Options {
  std::vector<fs::path> graphs;
  std::string streams = "max";
  fs::path verify, out, dot, trace, svg;
  bool json = false;
};

struct Output {
  fs::path path;
  std::string text;
};

StreamLimit stream_limit(const std::string& text, std::size_t tasks) {
  if (text == "max") return StreamLimit::maximum();
  const bool digits = !text.empty() && text.size() < 10 &&
                      std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
  if (!digits || std::stoul(text) == 0)
    throw InvalidInput("--streams must be 'max' or a number from 1 to 999999999, not '" + text + "'");
  return StreamLimit::at_most(std::min<std::size_t>(std::stoul(text), tasks));
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    throw InvalidInput(path.string() + ": " + error.message() +
                       "; of several graphs, the files go into a folder");
}

// Plans every graph before anything is printed or written, so that bad input leaves no trace.
int plan_graphs(const Options& options) {
  std::vector<tools::NamedSummary> summaries;
  std::vector<Output> outputs;
  for (const fs::path& path : options.graphs) {
    const GraphFile file = graph_from_json(read_file(path), path.string());
    const Schedule schedule =
        plan(file.graph, file.buffers, stream_limit(options.streams, file.graph.task_count()));
    verify_or_throw(file.graph, file.buffers, schedule);
    summaries.push_back({path.stem().string(), summarize(file, schedule)});
    const tools::NamedSummary& summary = summaries.back();
    const Simulation timeline = simulate(file.graph, schedule);
    auto add = [&](const fs::path& to, const char* ending, auto make) {
      if (to.empty()) return;
      const bool directory = options.graphs.size() > 1;
      outputs.push_back({directory ? to / (summary.name + ending) : to, make()});
    };
    add(options.out, ".schedule.json", [&] { return to_json(schedule, file); });
    add(options.dot, ".dot", [&] { return to_dot(file.graph, schedule); });
    add(options.trace, ".trace.json", [&] { return to_trace(file.graph, schedule, timeline); });
    add(options.svg, ".svg",
        [&] { return to_svg(file.graph, schedule, timeline, tools::headline(summary)); });
  }
  std::set<fs::path> paths;
  for (const Output& output : outputs)
    if (!paths.insert(output.path).second)
      throw InvalidInput(output.path.string() + " would be written twice");
  if (options.graphs.size() > 1)
    for (const fs::path& folder : {options.out, options.dot, options.trace, options.svg})
      if (!folder.empty()) make_folder(folder);
  for (const Output& output : outputs) write_file(output.path, output.text);
  std::cout << (options.json ? tools::json_report(summaries) : tools::report(summaries)) << std::flush;
  return 0;
}

int verify_schedule(const Options& options) {
  if (options.graphs.size() != 1) throw InvalidInput("--verify takes exactly one graph");
  const GraphFile file = graph_from_json(read_file(options.graphs.front()), options.graphs.front().string());
  const Schedule schedule = schedule_from_json(read_file(options.verify), file, options.verify.string());
  const std::vector<Violation> violations = verify(file.graph, file.buffers, schedule);
  for (const Violation& violation : violations) std::cout << violation.message << "\n";
  if (violations.empty()) std::cout << options.verify.string() << ": right\n";
  std::cout << std::flush;
  return violations.empty() ? 0 : 1;
}

// Names from a file may hold anything; an error stays on one line.
int fail(std::string message) {
  std::ranges::replace_if(
      message, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  std::cerr << "nimble-plan: " << message << "\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Plans task graphs: streams, synchronisations and memory, verified, with the predicted time."};
  app.footer(kExamples);
  app.set_version_flag("--version", NIMBLE_VERSION);
  app.add_option("graph", options.graphs, "graph files; several print a table")->required();
  auto* streams =
      app.add_option("--streams", options.streams, "'max' for maximum concurrency, or at most this many")
          ->type_name("max|N")
          ->capture_default_str();
  auto* verify = app.add_option("--verify", options.verify, "check this schedule instead of planning")
                     ->excludes(streams);
  app.add_option("--out", options.out, "write the schedule as JSON")->excludes(verify);
  app.add_option("--dot", options.dot, "write the schedule for Graphviz")->excludes(verify);
  app.add_option("--trace", options.trace, "write the predicted timeline for Perfetto")->excludes(verify);
  app.add_option("--svg", options.svg, "write the predicted timeline as a picture")->excludes(verify);
  app.add_flag("--json", options.json, "print the figures as JSON")->excludes(verify);
  try {
    app.parse(argc, argv);
    const int status = options.verify.empty() ? plan_graphs(options) : verify_schedule(options);
    return std::cout ? status : fail("cannot write to standard output");
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
