// What a compiled function says about itself.

#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <sstream>

#include "nimble/core/json.h"
#include "nimble/engine/compiled.h"
#include "nimble/engine/effects.h"
#include "nimble/engine/report_document.h"
#include "nimble/engine/wording.h"
#include "nimble/torch/dependencies.h"

namespace nimble {

Stats Compiled::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.cached = entries_.size();
  if (!last_used_ || !last_used_->is_planned()) return stats;
  stats.record_milliseconds = last_used_->record_milliseconds;
  for (const Part& part : last_used_->parts) {
    const Choice& choice = part.choice;
    const ExecutableReport report = choice.executable->report();
    stats.tasks += choice.tasks;
    stats.streams = std::max<std::uint64_t>(stats.streams, choice.streams);
    stats.syncs += choice.syncs;
    stats.degree_of_concurrency =
        std::max<std::uint64_t>(stats.degree_of_concurrency, choice.degree_of_concurrency);
    stats.arena_bytes += report.arena_bytes;
    stats.allocated_bytes += choice.allocated_bytes;
    stats.unplanned_allocations += report.unplanned_allocations;
    stats.static_bytes += report.static_bytes;
    stats.workspace_bytes += report.workspace_bytes;
    stats.plan_milliseconds += choice.plan_milliseconds;
    stats.tune_milliseconds += choice.tune_milliseconds + choice.kernels_milliseconds;
  }
  return stats;
}

std::string Compiled::program() const {
  const std::lock_guard lock(mutex_);
  return entries_.empty() || !entries_.front()->program ? "" : to_string(*entries_.front()->program);
}

std::string Compiled::task_graph() const {
  const std::lock_guard lock(mutex_);
  if (entries_.empty() || !entries_.front()->program) return "";
  const Program& program = *entries_.front()->program;
  return to_json(GraphFile{dependencies(program),
                           memory_demand(program, backend_for(program.device()).alignment()).specs});
}

std::string Compiled::report(const Tensors& inputs, std::int64_t variant) {
  const std::lock_guard preparing(preparing_);
  const auto entry = find(inputs, variant);
  if (!entry || entry->state != Entry::State::kReady) {
    const std::lock_guard lock(mutex_);
    return report_document(entries_, nullptr, {});
  }
  if (entry->derivative && !entry->lend()) {
    throw Error(
        "[nimble::report] a backward pass of this function is still to come, and measuring would overwrite "
        "what it reads. Call backward() first, or let go of the results");
  }
  const auto give_back = c10::make_scope_exit([&] {
    if (entry->derivative) entry->give_back();
  });
  std::vector<Measured> parts;
  const std::lock_guard replaying(entry->replaying);
  for (const Part& part : entry->parts) {
    if (part.choice.tasks == 0) {
      parts.emplace_back();
      continue;
    }
    Tensors arguments = inputs;
    if (entry->derivative && !parts.empty()) {
      const OutsideState before = OutsideState::save(*entry->parts[0].program, inputs);
      const auto put_back = c10::make_scope_exit([&] { before.try_restore(); });
      const Tensors results = replay_from(before, *entry->parts[0].choice.executable, inputs);
      for (at::Tensor& gradient : entry->derivative->some_gradients(results)) {
        arguments.push_back(std::move(gradient));
      }
    }
    parts.push_back(measure(*part.choice.executable, arguments));
  }
  const std::lock_guard lock(mutex_);
  return report_document(entries_, entry.get(), parts);
}

std::optional<StateBefore> Compiled::state_before(const Tensors& inputs, std::int64_t variant) {
  const auto entry = find(inputs, variant);
  const bool with_host = entry && !entry->derivative && entry->parts.size() > 1;
  if (!entry || entry->state != Entry::State::kReady || with_host) return std::nullopt;
  return StateBefore{OutsideState::save(*entry->program, inputs), Gradients(entry->gradients.leaves())};
}

void StateBefore::restore() const {
  state.restore();
  gradients.undo();
}

namespace {

void explain_rewriting(std::ostream& text, const Rewriting& rewriting) {
  constexpr std::size_t kShown = 3;
  for (const RewriteReport& report : rewriting.reports) {
    text << "  rewrite        " << report.name << ": ";
    if (!report.dropped.empty()) {
      text << "dropped, " << report.dropped << '\n';
      continue;
    }
    text << report.sites.size() << " times, " << report.tasks_before << " to " << report.tasks_after
         << " tasks in " << milliseconds(report.milliseconds);
    if (report.gained > 0) {
      text << ", " << milliseconds(static_cast<double>(report.gained) / 1e6) << " less one by one";
    }
    text << " (";
    for (std::size_t i = 0; i < std::min(kShown, report.sites.size()); ++i) {
      text << (i ? ", " : "") << report.sites[i];
    }
    text << (report.sites.size() > kShown ? ", …)\n" : ")\n");
  }
  if (rewriting.milliseconds_recorded > 0) {
    text << "  rewritten      from " << milliseconds(rewriting.milliseconds_recorded) << " to "
         << milliseconds(rewriting.milliseconds_rewritten) << " on one stream, in "
         << milliseconds(rewriting.milliseconds) << '\n';
  }
}

void explain_kernels(std::ostream& text, const Choice& choice) {
  if (choice.kernels_milliseconds == 0) return;
  for (const TriedKernel& tried : choice.kernels) {
    if (!tried.kept) continue;
    text << "  kernels        inside the schedule: " << counted(tried.tasks, "task") << " like " << tried.like
         << " by kernel " << tried.to << " instead of " << tried.from << ", "
         << milliseconds(tried.times.before) << " -> " << milliseconds(tried.times.after) << '\n';
  }
  text << "  kernels        inside the schedule: " << counted(choice.kernels.size(), "exchange") << " tried, "
       << std::ranges::count_if(choice.kernels, &TriedKernel::kept) << " kept, in "
       << milliseconds(choice.kernels_milliseconds) << '\n';
}

void explain_part(std::ostream& text, const Part& part) {
  explain_rewriting(text, part.rewriting);
  const Choice& choice = part.choice;
  const ExecutableReport report = choice.executable->report();
  text << "  schedule       " << counted(choice.tasks, "task") << ", " << counted(choice.streams, "stream")
       << ", " << counted(choice.syncs, "sync") << ", degree of concurrency " << choice.degree_of_concurrency
       << ", planned in " << milliseconds(choice.plan_milliseconds) << '\n'
       << "  memory         " << bytes(report.arena_bytes) << " arena for " << bytes(choice.allocated_bytes)
       << " of allocations, " << report.unplanned_allocations << " unplanned\n";
  for (const Tried& tried : choice.tried) {
    text << "  tried          " << counted(tried.streams, "stream");
    if (tried.threads_per_stream) text << " x " << counted(tried.threads_per_stream, "thread");
    if (!tried.rejected.empty()) text << ": rejected, " << tried.rejected;
    if (tried.milliseconds > 0) text << ": " << milliseconds(tried.milliseconds);
    text << (choice.remembered ? ", by an earlier process\n" : "\n");
  }
  explain_kernels(text, choice);
}

void explain_entry(std::ostream& text, const Entry& entry) {
  text << entry.signature.to_string() << '\n';
  if (entry.state == Entry::State::kEager) {
    text << "  runs eagerly   " << entry.why_not_replayed() << '\n';
    return;
  }
  if (entry.state == Entry::State::kUnsettled) {
    text << "  set up         " << entry.why_not_replayed() << "; the next call is recorded again\n";
    return;
  }
  text << "  recorded       " << counted(entry.program->tasks.size(), "task") << " in "
       << milliseconds(entry.record_milliseconds) << '\n';
  if (entry.state == Entry::State::kMismatched) {
    text << "  mismatch       " << entry.why_not_replayed() << "; the next call is recorded again\n";
    return;
  }
  if (entry.state == Entry::State::kRecorded) {
    text << "  next           the next call is run both ways and compared\n";
    return;
  }
  if (!entry.why_without_tf32.empty()) {
    text << "  rewrites       once more without TF32: " << entry.why_without_tf32 << '\n';
  }
  if (!entry.rewrites_dropped.empty()) text << "  rewrites       dropped: " << entry.rewrites_dropped << '\n';
  for (std::size_t i = 0; i < entry.parts.size(); ++i) {
    if (i == 0 || entry.parts[i].choice.tasks > 0) explain_part(text, entry.parts[i]);
    if (i + 1 == entry.parts.size()) continue;
    if (entry.derivative) {
      text << "  backward       when autograd asks for it\n";
    } else {
      text << "  on the host    " << entry.guard->name_of_step(i) << '\n';
    }
  }
  text << "  replayed       " << counted(entry.replays, "time") << '\n';
}

}  // namespace

std::string Compiled::explain() const {
  const std::lock_guard lock(mutex_);
  std::ostringstream text;
  if (entries_.empty()) text << "nothing recorded yet: the first call runs eagerly and is recorded\n";
  for (const auto& entry : entries_) explain_entry(text, *entry);
  return text.str();
}

}  // namespace nimble
