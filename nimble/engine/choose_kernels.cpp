#include "nimble/engine/choose_kernels.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "nimble/core/critical_path.h"
#include "nimble/engine/known_replays.h"
#include "nimble/engine/measure.h"
#include "nimble/torch/rewrites/cuda/other_kernels.h"
#include "nimble/torch/rewrites/faster_of.h"

namespace nimble {
namespace {

// Tasks that look alike.
struct Kind {
  std::string name;
  std::vector<TaskId> tasks;
  Nanoseconds weight = 0;  // what those take that the whole may be waiting for
};

std::vector<Kind> kinds_by_weight(const Program& program, const TaskGraph& order,
                                  const OtherKernels& other_kernels) {
  constexpr double kNear = 0.9;  // of the longest path: other kernels move it
  const auto through = longest_paths_through(order, kMeasuredMachine);
  const Nanoseconds longest = through.empty() ? 0 : *std::ranges::max_element(through);
  std::map<std::string, Kind> by_name;
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    if (other_kernels(task).empty()) continue;
    const std::string name = describe_tasks({&task, 1});
    Kind& kind = by_name.try_emplace(name, Kind{.name = name, .tasks = {}}).first->second;
    kind.tasks.push_back(TaskId{i});
    const bool is_near = static_cast<double>(through[i]) >= kNear * static_cast<double>(longest);
    if (is_near) kind.weight += order.cost(TaskId{i}).value_or(0);
  }
  std::vector<Kind> kinds;
  for (auto& [name, kind] : by_name) {
    if (kind.weight > 0) kinds.push_back(std::move(kind));
  }
  std::ranges::stable_sort(kinds, std::ranges::greater(), &Kind::weight);
  return kinds;
}

// Its operator and the shapes of its first two tensors: pixels and weights.
std::string short_description(const Task& task) {
  constexpr std::size_t kShown = 2;
  const std::string& op = task.op.operator_name().name;
  std::string text = op.substr(op.find("::") + 2) + '(';
  std::size_t shown = 0;
  for (const Operand& operand : task.arguments) {
    for_each_ref(operand, [&](const TensorRef& ref) {
      if (shown++ >= kShown) return;
      if (shown > 1) text += ", ";
      for (std::size_t d = 0; d < ref.sizes.size(); ++d) {
        text += (d ? "x" : "") + std::to_string(ref.sizes[d]);
      }
    });
  }
  return text + ')';
}

std::optional<ReplayTimes> timed(const std::shared_ptr<const Program>& best,
                                 const std::shared_ptr<const Program>& rival, const Exchange& exchange,
                                 const KernelJudge& judge) {
  try {
    const ReplayTimes times = judge.time(best, rival, exchange, /*again=*/false);
    return times.faster() ? judge.time(best, rival, exchange, /*again=*/true) : times;
  } catch (const std::exception&) {
    return {};  // a later process may have the memory for it
  }
}

}  // namespace

Program exchanged(Program program, const Exchange& exchange) {
  for (std::size_t i = 0; i < exchange.tasks.size(); ++i) {
    program.tasks[exchange.tasks[i].index()] = exchange.by[i];
  }
  return program;
}

std::vector<Exchange> exchanges_to_try(const Program& program, const TaskGraph& order,
                                       const OtherKernels& other_kernels, std::size_t most_kinds) {
  std::vector<Exchange> exchanges;
  std::vector<Kind> kinds = kinds_by_weight(program, order, other_kernels);
  kinds.resize(std::min(kinds.size(), most_kinds));
  for (const Kind& kind : kinds) {
    std::vector<Exchange> of_kind;  // by kernel
    for (const TaskId task : kind.tasks) {
      std::vector<Task> others = other_kernels(program.task(task));
      of_kind.resize(others.size());
      for (std::size_t i = 0; i < others.size(); ++i) {
        of_kind[i].name = kind.name + "\nby " + kernel_name(others[i]);
        of_kind[i].tasks.push_back(task);
        of_kind[i].by.push_back(std::move(others[i]));
      }
    }
    std::ranges::move(of_kind, std::back_inserter(exchanges));
  }
  return exchanges;
}

bool ReplayTimes::faster() const {
  constexpr double kClearly = 0.995;
  return after < kClearly * before;
}

KnownExchanges::KnownExchanges(std::shared_ptr<KnownTimes> known, const Program& program, std::size_t streams)
    : known_(std::move(known)), streams_(streams) {
  follow(program);
}

void KnownExchanges::follow(const Program& program) {
  program_ = name_of(program) + " on " + std::to_string(streams_) + " streams";
}

std::string KnownExchanges::key(const Exchange& exchange, const char* when) const {
  return "replay of " + program_ + ' ' + when + '\n' + exchange.name;
}

std::optional<ReplayTimes> KnownExchanges::find(const Exchange& exchange) const {
  if (!known_) return {};
  const auto before = known_->find(key(exchange, "before")), after = known_->find(key(exchange, "after"));
  if (!before || !after) return {};
  return ReplayTimes{static_cast<double>(*before) / 1e6, static_cast<double>(*after) / 1e6};
}

void KnownExchanges::add(const Exchange& exchange, const ReplayTimes& times) {
  if (!known_) return;
  const auto nanoseconds = [](double time) { return static_cast<Nanoseconds>(std::llround(time * 1e6)); };
  known_->add(key(exchange, "before"), nanoseconds(times.before));
  known_->add(key(exchange, "after"), nanoseconds(times.after));
}

ChosenKernels choose_kernels(const std::shared_ptr<const Program>& program,
                             std::span<const Exchange> exchanges, KnownExchanges& known,
                             const KernelJudge& judge) {
  ChosenKernels chosen{program};
  for (const Exchange& exchange : exchanges) {
    auto times = known.find(exchange);
    if (times && !times->possible()) continue;
    if (!times && !judge.time_is_left()) continue;
    std::shared_ptr<const Program> rival;
    if (!times || times->faster()) {
      rival = std::make_shared<const Program>(exchanged(*chosen.program, exchange));
    }
    if (!times) {
      times = timed(chosen.program, rival, exchange, judge);
      if (times) known.add(exchange, *times);
      if (!times || !times->possible()) continue;
    }
    const TaskId one = exchange.tasks.front();
    chosen.tried.push_back({.like = short_description(program->task(one)),
                            .from = kernel_name(chosen.program->task(one)),
                            .to = kernel_name(exchange.by.front()),
                            .tasks = exchange.tasks.size(),
                            .times = *times,
                            .kept = times->faster()});
    if (!times->faster()) continue;
    chosen.program = rival;
    known.follow(*rival);
  }
  return chosen;
}

}  // namespace nimble
