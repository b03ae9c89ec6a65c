#include "nimble/torch/rewrites/faster_of.h"

#include <chrono>
#include <limits>
#include <sstream>

#include "nimble/torch/rewrites/coming_kernels.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Nanoseconds kFails = std::numeric_limits<Nanoseconds>::max();

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

Nanoseconds Chooser::time(std::span<const Buffer> buffers, const std::vector<Task>& tasks) {
  const auto [known, first] = known_.try_emplace(describe_tasks(tasks), kFails);
  if (!first) return known->second;
  if (context_.known) {
    if (const auto before = context_.known->find(known->first)) return known->second = *before;
  }
  auto start = Clock::now();
  try {
    compile_kernels_ahead(tasks, context_.device).reset();
    start = Clock::now();  // waiting for kernels is not measuring
    known->second = context_.measure(buffers, tasks);
    if (context_.known) context_.known->add(known->first, known->second);
  } catch (const std::exception&) {
    // Stays the slowest there is, in this process: another may have the memory that it needs.
  }
  spent_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  return known->second;
}

std::size_t Chooser::faster_of(std::span<const Buffer> buffers, std::span<const std::vector<Task>> candidates,
                               double clearly) {
  if (context_.consider) {
    for (const std::vector<Task>& tasks : candidates) context_.consider(tasks);
  }
  if (!context_.measure || spent_seconds_ > context_.measure_seconds) return 0;
  std::size_t best = 0;
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    const double limit = static_cast<double>(time(buffers, candidates[best])) * (best == 0 ? clearly : 1.0);
    if (static_cast<double>(time(buffers, candidates[i])) < limit) best = i;
  }
  return best;
}

}  // namespace nimble
