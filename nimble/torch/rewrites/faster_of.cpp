#include "nimble/torch/rewrites/faster_of.h"

#include <chrono>
#include <limits>
#include <sstream>

#include "nimble/torch/rewrites/coming_kernels.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Nanoseconds kFails = std::numeric_limits<Nanoseconds>::max();
constexpr const char* kBesideOneAnother = "side by side: ";  // before what those tasks are

}  // namespace

std::string describe_tasks(std::span<const Task> tasks) {
  std::ostringstream text;
  for (const Task& task : tasks) {
    text << task.op.operator_name() << '(';
    for (const Operand& operand : task.arguments) {
      if (const auto* value = std::get_if<c10::IValue>(&operand)) {
        if (!value->isObject() && !value->isTensor()) text << *value;
      }
      for_each_ref(operand, [&](const TensorRef& ref) { text << to_string(ref); });
      text << ',';
    }
    text << ')';
  }
  return text.str();
}

std::vector<Buffer> without_outside(std::span<const Buffer> buffers) {
  std::vector<Buffer> alike;
  for (const Buffer& buffer : buffers) alike.push_back({.bytes = buffer.bytes, .device = buffer.device});
  return alike;
}

Nanoseconds Chooser::time(std::span<const Buffer> buffers, const std::vector<Task>& tasks, How how) {
  const bool side_by_side = how == How::kSideBySide;
  const auto [known, first] =
      known_.try_emplace((side_by_side ? kBesideOneAnother : "") + describe_tasks(tasks), kFails);
  if (!first) return known->second;
  if (context_.known) {
    if (const auto before = context_.known->find(known->first)) return known->second = *before;
  }
  auto start = Clock::now();
  try {
    compile_kernels_ahead(tasks, context_.device).reset();
    start = Clock::now();  // waiting for kernels is not measuring
    const auto& measure = side_by_side ? context_.measure_side_by_side : context_.measure;
    known->second = measure(buffers, tasks);
    if (context_.known) context_.known->add(known->first, known->second);
  } catch (const std::exception&) {
    // Stays the slowest there is, in this process: another may have the memory that it needs.
  }
  spent_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  return known->second;
}

std::optional<Nanoseconds> Chooser::measured(const std::vector<Task>& tasks, How how) const {
  const auto found = known_.find((how == How::kSideBySide ? kBesideOneAnother : "") + describe_tasks(tasks));
  return found == known_.end() || found->second == kFails ? std::nullopt : std::optional(found->second);
}

void Chooser::took(const std::vector<Task>& way, const std::vector<Task>& instead_of) {
  if (!context_.measure) return;
  const auto now = measured(way, How::kOneAfterTheOther);
  auto before = measured(instead_of, How::kSideBySide);
  if (!before) before = measured(instead_of, How::kOneAfterTheOther);
  if (now && before) gained_ += *before - *now;
}

std::size_t Chooser::faster_of(std::span<const Buffer> buffers, std::span<const std::vector<Task>> candidates,
                               double clearly) {
  if (context_.consider) {
    for (const std::vector<Task>& tasks : candidates) context_.consider(tasks);
  }
  if (!measures()) return 0;
  std::size_t best = 0;
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    const double limit = static_cast<double>(time(buffers, candidates[best])) * (best == 0 ? clearly : 1.0);
    if (static_cast<double>(time(buffers, candidates[i])) < limit) best = i;
  }
  return best;
}

bool Chooser::faster_than_side_by_side(std::span<const Buffer> buffers, const std::vector<Task>& together,
                                       const std::vector<Task>& apart, double clearly) {
  if (!measures() || !context_.measure_side_by_side) return false;
  const Nanoseconds side_by_side = time(buffers, apart, How::kSideBySide);
  return side_by_side != kFails &&
         static_cast<double>(time(buffers, together)) < clearly * static_cast<double>(side_by_side);
}

}  // namespace nimble
