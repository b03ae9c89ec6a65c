#include "nimble/engine/known_replays.h"

#include <cmath>
#include <functional>
#include <unordered_map>

#include "nimble/torch/rewrites/faster_of.h"

namespace nimble {
namespace {

constexpr double kNanoseconds = 1e6;  // of a millisecond

std::string in_words(StreamLimit limit) {
  return limit.count == 0 ? "any number of streams" : "at most " + std::to_string(limit.count) + " streams";
}

Nanoseconds rounded(double milliseconds) {
  return static_cast<Nanoseconds>(std::llround(milliseconds * kNanoseconds));
}

}  // namespace

std::string name_of(const Program& program) {
  // Buffers have other numbers in another process, but are met in the same order.
  std::string text = describe_tasks(program.tasks);
  std::unordered_map<BufferId, std::size_t> met;
  for (const Task& task : program.tasks) {
    for (const auto* refs : {&task.reads, &task.writes}) {
      for (const TensorRef& ref : *refs) {
        text += ' ' + std::to_string(met.try_emplace(ref.buffer, met.size()).first->second);
      }
    }
  }
  return std::to_string(std::hash<std::string>()(text)) + " of " + std::to_string(program.tasks.size()) +
         " tasks";
}

KnownReplays::KnownReplays(std::shared_ptr<KnownTimes> known, const Program& program)
    : known_(std::move(known)), program_(known_ ? name_of(program) : "") {}

std::string KnownReplays::key(std::string_view what) const {
  return "replay of " + program_ + ", " + std::string(what);
}

std::optional<double> KnownReplays::on_one_stream(const Program& beside) const {
  const auto time = known_ ? known_->find(key("one stream, beside " + name_of(beside))) : std::nullopt;
  return time ? std::optional(static_cast<double>(*time) / kNanoseconds) : std::nullopt;
}

void KnownReplays::add_on_one_stream(const Program& beside, double milliseconds) {
  if (known_) known_->add(key("one stream, beside " + name_of(beside)), rounded(milliseconds));
}

std::optional<std::vector<KnownReplays::Replay>> KnownReplays::within(
    std::span<const StreamLimit> limits) const {
  if (!known_) return {};
  std::vector<Replay> replays;
  for (const StreamLimit limit : limits) {
    const auto time = known_->find(key(in_words(limit) + ", median"));
    const auto streams = known_->find(key(in_words(limit) + ", how many"));
    if (!time || !streams) return {};
    replays.push_back({static_cast<std::size_t>(*streams), static_cast<double>(*time) / kNanoseconds});
  }
  return replays;
}

void KnownReplays::add(StreamLimit limit, const Replay& replay) {
  if (!known_) return;
  known_->add(key(in_words(limit) + ", median"), rounded(replay.milliseconds));
  known_->add(key(in_words(limit) + ", how many"), static_cast<Nanoseconds>(replay.streams));
}

}  // namespace nimble
