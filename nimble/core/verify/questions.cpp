#include "nimble/core/verify/questions.h"

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <iterator>
#include <span>

namespace nimble::verification {
namespace {

constexpr std::size_t kBatch = 512;
using Ancestors = std::bitset<kBatch>;  // which nodes of the batch happen before a node

// earliest[i]: every node from i on has a direct predecessor at `earliest[i]` or later.
std::vector<std::size_t> earliest_links(const StepOrder& order) {
  std::vector<std::size_t> earliest(order.node_count() + 1, order.node_count());
  for (std::size_t i = order.node_count(); i-- > 0;) {
    auto before = order.directly_before(static_cast<Node>(i));
    std::size_t newest = before.empty() ? 0 : *std::ranges::max_element(before);
    earliest[i] = std::min(earliest[i + 1], newest);
  }
  return earliest;
}

// Fills in `ancestors[i - base]` for the nodes i = base … last and returns where it stopped: every later node
// comes after the whole batch.
std::size_t sweep(const StepOrder& order, std::size_t base, std::size_t last,
                  std::span<const std::size_t> earliest, std::vector<Ancestors>& ancestors) {
  const std::size_t batch_end = base + kBatch;
  ancestors.resize(last + 1 - base);
  std::size_t complete_since = batch_end;  // from here to the current node, all come after the whole batch
  for (std::size_t node = base; node <= last; ++node) {
    Ancestors& mine = ancestors[node - base];
    mine.reset();
    for (std::size_t before : order.directly_before(static_cast<Node>(node))) {
      if (before < base) continue;
      mine |= ancestors[before - base];
      if (before < batch_end) mine.set(before - base);
    }
    if (node < batch_end) continue;
    if (!mine.all()) complete_since = node + 1;
    if (complete_since <= node && earliest[node + 1] >= complete_since) return node + 1;
  }
  return last + 1;
}

}  // namespace

std::vector<std::uint32_t> subjects_not_ordered(const StepOrder& order, std::vector<Question> questions) {
  std::vector<std::uint32_t> failing;
  std::erase_if(questions, [&](const Question& q) {
    if (q.before >= q.after) failing.push_back(q.subject);  // it ran later once, so it can run later
    return q.before >= q.after || order.stream[q.before] == order.stream[q.after];
  });

  std::ranges::sort(questions, {}, &Question::before);
  const std::vector<std::size_t> earliest = earliest_links(order);
  std::vector<Ancestors> ancestors;
  for (auto first = questions.begin(); first != questions.end();) {
    const std::size_t base = first->before;
    auto end =
        std::find_if(first, questions.end(), [&](const Question& q) { return q.before >= base + kBatch; });
    const std::size_t last = std::max_element(first, end, [](const Question& a, const Question& b) {
                               return a.after < b.after;
                             })->after;
    const std::size_t stop = sweep(order, base, last, earliest, ancestors);
    for (; first != end; ++first)
      if (first->after < stop && !ancestors[first->after - base].test(first->before - base))
        failing.push_back(first->subject);
  }

  std::ranges::sort(failing);
  failing.erase(std::unique(failing.begin(), failing.end()), failing.end());
  return failing;
}

}  // namespace nimble::verification
