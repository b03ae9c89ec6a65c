#include "nimble/core/verify/memory_conflicts.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "nimble/core/verify/questions.h"

namespace nimble::verification {
namespace {

// When a buffer is in use. Within a stream only its first and its last use matter.
struct Life {
  BufferId buffer;
  Node begin, end;  // first and last use in the order of the walk
  std::vector<Node> first_uses, last_uses;
};

Life life_of(const StepOrder& order, BufferId buffer, std::span<const TaskId> uses) {
  std::vector<Node> nodes;
  for (TaskId task : uses)
    if (task.index() < order.node_of.size() && order.node_of[task.index()] != kNoNode)
      nodes.push_back(order.node_of[task.index()]);
  if (nodes.empty()) return {buffer, kNoNode, kNoNode, {}, {}};

  std::ranges::sort(nodes, {}, [&](Node node) { return std::pair(order.stream[node], node); });
  Life life{buffer, std::ranges::min(nodes), std::ranges::max(nodes), {}, {}};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    auto stream = order.stream[nodes[i]];
    if (i == 0 || order.stream[nodes[i - 1]] != stream) life.first_uses.push_back(nodes[i]);
    if (i + 1 == nodes.size() || order.stream[nodes[i + 1]] != stream) life.last_uses.push_back(nodes[i]);
  }
  return life;
}

// An address at which a buffer starts or ends, for a sweep from low to high.
struct Boundary {
  std::uint64_t address;
  bool starts;  // false sorts first: where one buffer ends and the next starts they share no byte
  std::uint32_t life;
  friend auto operator<=>(const Boundary&, const Boundary&) = default;
};

class Checker {
 public:
  Checker(const StepOrder& order, std::span<const BufferSpec> buffers, std::span<const std::uint64_t> offsets)
      : order_(order) {
    for (std::uint32_t b = 0; b < buffers.size(); ++b) {
      Life life = life_of(order, BufferId{b}, buffers[b].uses);
      if (life.first_uses.empty() || buffers[b].bytes == 0) continue;
      const auto index = static_cast<std::uint32_t>(lives_.size());
      boundaries_.push_back({offsets[b], true, index});
      boundaries_.push_back({offsets[b] + buffers[b].bytes, false, index});
      lives_.push_back(std::move(life));
    }
    std::ranges::sort(boundaries_);
  }

  bool neighbours_in_time_agree() {
    auto earlier = [this](std::uint32_t a, std::uint32_t b) {
      return std::pair(lives_[a].begin, a) < std::pair(lives_[b].begin, b);
    };
    std::set<std::uint32_t, decltype(earlier)> here(earlier);  // the buffers at the current address, by time
    for (const Boundary& boundary : boundaries_) {
      if (boundary.starts) {
        auto self = here.insert(boundary.life).first;
        if (self != here.begin()) compare(*std::prev(self), *self);
        if (auto next = std::next(self); next != here.end()) compare(*self, *next);
      } else {
        auto next = here.erase(here.find(boundary.life));
        if (next != here.begin() && next != here.end()) compare(*std::prev(next), *next);
      }
    }
    return conflicts().empty();
  }

  std::vector<BufferPair> all_conflicts() {
    std::vector<BufferPair> found;
    std::set<std::uint32_t> here;
    for (const Boundary& boundary : boundaries_) {
      if (boundary.starts) {
        for (std::uint32_t other : here) compare(other, boundary.life);
        here.insert(boundary.life);
      } else {
        here.erase(boundary.life);
      }
      if (questions_.size() > kQuestionsAtOnce) std::ranges::move(conflicts(), std::back_inserter(found));
    }
    std::ranges::move(conflicts(), std::back_inserter(found));
    std::ranges::sort(found);
    return found;
  }

 private:
  static constexpr std::size_t kQuestionsAtOnce = 1 << 20;

  // Notes what has to hold for the two not to be in use together.
  void compare(std::uint32_t a, std::uint32_t b) {
    const Life* first = &lives_[a];
    const Life* second = &lives_[b];
    if (second->begin < first->begin) std::swap(first, second);
    const auto subject = static_cast<std::uint32_t>(compared_.size());
    compared_.push_back({std::min(first->buffer, second->buffer), std::max(first->buffer, second->buffer)});
    if (first->end >= second->begin) {  // they alternate, so neither can come first
      questions_.push_back({first->end, second->begin, subject});
      return;
    }
    for (Node before : first->last_uses)
      for (Node after : second->first_uses) questions_.push_back({before, after, subject});
  }

  // Of the pairs compared since the last call, those in conflict.
  std::vector<BufferPair> conflicts() {
    std::vector<BufferPair> found;
    for (std::uint32_t subject : subjects_not_ordered(order_, std::exchange(questions_, {})))
      found.push_back(compared_[subject]);
    compared_.clear();
    return found;
  }

  const StepOrder& order_;
  std::vector<Life> lives_;
  std::vector<Boundary> boundaries_;
  std::vector<BufferPair> compared_;  // by subject
  std::vector<Question> questions_;
};

}  // namespace

std::vector<BufferPair> memory_conflicts(const StepOrder& order, std::span<const BufferSpec> buffers,
                                         std::span<const std::uint64_t> offsets) {
  Checker checker(order, buffers, offsets);
  if (checker.neighbours_in_time_agree()) return {};
  return checker.all_conflicts();
}

}  // namespace nimble::verification
