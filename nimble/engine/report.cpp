// What a compiled function says about itself.

#include <algorithm>
#include <sstream>

#include "nimble/core/json.h"
#include "nimble/engine/compiled.h"
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
    stats.tune_milliseconds += choice.tune_milliseconds;
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
         << " tasks (";
    for (std::size_t i = 0; i < std::min(kShown, report.sites.size()); ++i) {
      text << (i ? ", " : "") << report.sites[i];
    }
    text << (report.sites.size() > kShown ? ", …)\n" : ")\n");
  }
}

void explain_part(std::ostream& text, const Part& part) {
  explain_rewriting(text, part.rewriting);
  const auto mebibytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const Choice& choice = part.choice;
  const ExecutableReport report = choice.executable->report();
  text << "  schedule       " << choice.tasks << " tasks, " << choice.streams << " streams, " << choice.syncs
       << " syncs, degree of concurrency " << choice.degree_of_concurrency << ", planned in "
       << choice.plan_milliseconds << " ms\n"
       << "  memory         " << mebibytes(report.arena_bytes) << " MiB arena for "
       << mebibytes(choice.allocated_bytes) << " MiB of allocations, " << report.unplanned_allocations
       << " unplanned\n";
  for (const Tried& tried : choice.tried) {
    text << "  tried          " << tried.streams << " streams";
    if (tried.threads_per_stream) text << " x " << tried.threads_per_stream << " threads";
    if (!tried.rejected.empty()) text << ": rejected, " << tried.rejected;
    if (tried.milliseconds > 0) text << ": " << tried.milliseconds << " ms";
    text << '\n';
  }
}

void explain_entry(std::ostream& text, const Entry& entry) {
  text << entry.signature.to_string() << '\n';
  if (entry.state == Entry::State::kEager) {
    text << "  runs eagerly   "
         << (entry.reason.empty() ? "the loss used other results than when it was recorded" : entry.reason)
         << '\n';
    return;
  }
  if (entry.state == Entry::State::kUnsettled) {
    text << "  set up         " << entry.reason << "; the next call is recorded again\n";
    return;
  }
  text << "  recorded       " << entry.program->tasks.size() << " tasks in " << entry.record_milliseconds
       << " ms\n";
  if (entry.state == Entry::State::kMismatched) {
    text << "  mismatch       " << entry.reason << "; the next call is recorded again\n";
    return;
  }
  if (entry.state == Entry::State::kRecorded) {
    text << "  next           the next call is run both ways and compared\n";
    return;
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
  text << "  replayed       " << entry.replays << " times\n";
}

}  // namespace

std::string Compiled::explain() const {
  const std::lock_guard lock(mutex_);
  std::ostringstream text;
  text.precision(3);
  if (entries_.empty()) text << "nothing recorded yet: the first call runs eagerly and is recorded\n";
  for (const auto& entry : entries_) explain_entry(text, *entry);
  return text.str();
}

}  // namespace nimble
