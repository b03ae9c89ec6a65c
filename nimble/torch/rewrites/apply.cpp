#include "nimble/torch/rewrites/apply.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <string>
#include <unordered_set>

#include "nimble/torch/rewrites/check_program.h"
#include "nimble/torch/rewrites/coming_kernels.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/known_forms.h"
#include "nimble/torch/rewrites/record_anew.h"
#include "nimble/torch/rewrites/try_alone.h"

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
  const Rewritten unmeasured = rewrite.apply(program, {.device = context.device,
                                                       .precise = context.precise,
                                                       .trains = context.trains,
                                                       .tolerant = context.tolerant,
                                                       .consider = consider});
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

// For good: until here some tasks were never run with the others, and convolutions on a GPU only laid out
// their results. Says why that fails.
std::string record_for_good(AppliedRewrites& applied, const Program& original,
                            std::span<const at::Tensor> inputs) {
  return failure_of([&] {
    applied.program = record_anew(applied.program, inputs);
    check_program(applied.program, original, "the last recording");
  });
}

void drop_all(AppliedRewrites& applied, const Program& original, const std::string& failure) {
  for (RewriteReport& report : applied.reports) {
    if (report.dropped.empty()) report.dropped = failure;
  }
  applied.program = original;
  applied.exact = true;
}

// Without running the program: tasks that were recorded stay as they are, kernels of ours are tried alone.
void complete_unrun(Program& rewritten) {
  compile_kernels_ahead(rewritten.tasks, rewritten.device()).reset();
  for (Task& task : rewritten.tasks) {
    const bool is_ours = task.op.operator_name().name.starts_with("nimble::");
    if (!is_ours || !task.allocations.empty()) continue;  // or was completed before
    find_allocations(task, rewritten.buffers);
    try_alone(task, rewritten.buffers);
  }
}

// What a rewrite made of `before`, as the next one shall see it.
Program completed(Program rewritten, const Program& before, std::span<const at::Tensor> inputs,
                  const RewriteContext& context, KnownForms& forms) {
  if (context.trains) {
    complete_unrun(rewritten);
    return rewritten;
  }
  if (!context.record_each && forms.are_as_said(rewritten, before)) return rewritten;
  return context.device.is_cuda() ? record_forms(rewritten, inputs) : record_anew(rewritten, inputs);
}

std::vector<const Rewrite*> those_for(std::span<const Rewrite* const> rewrites,
                                      const RewriteContext& context) {
  std::vector<const Rewrite*> fitting;
  std::ranges::copy_if(rewrites, std::back_inserter(fitting), [&](const Rewrite* rewrite) {
    return rewrite->is_for(context.device) && (rewrite->for_training || !context.trains);
  });
  return fitting;
}

// Those that only prepare for others are nothing by themselves.
bool only_prepare(std::span<const Rewrite* const> rewrites) {
  return std::ranges::all_of(rewrites, [](const Rewrite* rewrite) { return rewrite->always; });
}
void drop_preparations(AppliedRewrites& applied, const Program& original) {
  applied.program = original;
  std::erase_if(applied.reports, [](const RewriteReport& report) { return report.dropped.empty(); });
}

}  // namespace

AppliedRewrites apply_rewrites(const Program& program, std::span<const Rewrite* const> rewrites,
                               std::span<const at::Tensor> inputs, const RewriteContext& context) {
  AppliedRewrites applied{.program = program, .reports = {}};
  const bool trains = context.trains;
  const auto fitting = those_for(rewrites, context);
  if (trains && only_prepare(fitting)) return applied;
  std::vector<const Rewrite*> fired;
  KnownForms forms;
  for (const Rewrite* rewrite : fitting) {
    const auto start = Clock::now();
    RewriteReport report{.name = std::string(rewrite->name), .sites = {}};
    report.tasks_before = report.tasks_after = applied.program.tasks.size();
    report.dropped = failure_of([&] {
      const auto compiling =
          context.measure ? compile_what_may_be_measured(*rewrite, applied.program, context) : nullptr;
      Rewritten rewritten = rewrite->apply(applied.program, context);
      if (rewritten.sites.empty()) return;
      report.sites = std::move(rewritten.sites);
      report.gained = rewritten.gained;
      check_program(rewritten.program, applied.program, rewrite->name);
      Program whole = completed(std::move(rewritten.program), applied.program, inputs, context, forms);
      check_program(whole, applied.program, rewrite->name);
      applied.program = std::move(whole);
      report.tasks_after = applied.program.tasks.size();
      applied.exact &= rewrite->exact || (trains && !context.tolerant);
      fired.push_back(rewrite);
    });
    if (report.sites.empty() && report.dropped.empty()) continue;
    report.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    applied.reports.push_back(std::move(report));
  }
  if (trains && only_prepare(fired)) drop_preparations(applied, program);
  if (trains || fired.empty()) return applied;
  const std::string failure = record_for_good(applied, program, inputs);
  if (failure.empty()) return applied;
  if (!context.record_each) {  // that shows which of them it is
    RewriteContext careful = context;
    careful.record_each = true;
    return apply_rewrites(program, rewrites, inputs, careful);
  }
  drop_all(applied, program, failure);
  return applied;
}

}  // namespace nimble
