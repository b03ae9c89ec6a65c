#include "nimble/torch/rewrites/apply.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <unordered_set>

#include "nimble/torch/rewrites/check_program.h"
#include "nimble/torch/rewrites/coming_kernels.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/record_anew.h"

namespace nimble {

bool writes_outside(const Program& program) {
  return std::any_of(program.tasks.begin(), program.tasks.end(), [&](const Task& task) {
    return std::any_of(task.writes.begin(), task.writes.end(),
                       [&](const TensorRef& ref) { return program.buffer(ref.buffer).outside.defined(); });
  });
}

namespace {

using Clock = std::chrono::steady_clock;

// Measuring would compile one kernel after the other. So they are compiled side by side, in the order in
// which they will be measured, and the first are measured while the others are still on their way.
kernels::Compiling compile_what_may_be_measured(const Rewrite& rewrite, const Program& program,
                                                const RewriteContext& context) {
  std::vector<Task> tasks;
  std::unordered_set<std::string> known;
  const auto consider = [&](std::span<const Task> way) {
    for (const Task& task : way) {
      if (known.insert(describe_tasks({&task, 1})).second) tasks.push_back(task);
    }
  };
  const Rewritten unmeasured =
      rewrite.apply(program, {.device = context.device, .precise = context.precise, .consider = consider});
  consider(unmeasured.program.tasks);
  return compile_kernels_ahead(tasks, context.device);
}

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

// What `work` throws, in one line; empty if nothing.
std::string failure_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const c10::Error& error) {
    return first_line(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return error.what();
  }
}

// For good: until here convolutions only laid out their results. If that fails, no rewrite stays.
void record_for_good(AppliedRewrites& applied, const Program& original, std::span<const at::Tensor> inputs) {
  const std::string failure = failure_of([&] { applied.program = record_anew(applied.program, inputs); });
  if (failure.empty()) return;
  for (RewriteReport& report : applied.reports) {
    if (report.dropped.empty()) report.dropped = failure;
  }
  applied.program = original;
  applied.exact = true;
}

}  // namespace

AppliedRewrites apply_rewrites(const Program& program, std::span<const Rewrite* const> rewrites,
                               std::span<const at::Tensor> inputs, const RewriteContext& context,
                               bool trains) {
  AppliedRewrites applied{.program = program, .reports = {}};
  const bool only_forms = context.device.is_cuda();
  for (const Rewrite* rewrite : rewrites) {
    if (!rewrite->is_for(context.device) || (trains && !rewrite->for_training)) continue;
    const auto start = Clock::now();
    RewriteReport report{.name = std::string(rewrite->name), .sites = {}};
    report.tasks_before = report.tasks_after = applied.program.tasks.size();
    report.dropped = failure_of([&] {
      const auto compiling =
          context.measure ? compile_what_may_be_measured(*rewrite, applied.program, context) : nullptr;
      Rewritten rewritten = rewrite->apply(applied.program, context);
      if (rewritten.sites.empty()) return;
      report.sites = std::move(rewritten.sites);
      check_program(rewritten.program, applied.program, rewrite->name);
      Program recorded =
          only_forms ? record_forms(rewritten.program, inputs) : record_anew(rewritten.program, inputs);
      check_program(recorded, applied.program, rewrite->name);
      applied.program = std::move(recorded);
      report.tasks_after = applied.program.tasks.size();
      applied.exact &= rewrite->exact;
    });
    if (report.sites.empty() && report.dropped.empty()) continue;
    report.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    applied.reports.push_back(std::move(report));
  }
  if (only_forms && !applied.reports.empty()) record_for_good(applied, program, inputs);
  return applied;
}

}  // namespace nimble
