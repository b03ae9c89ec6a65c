#include "nimble/core/minimum_equivalent_graph.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace nimble {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kBitsPerWord = 64;

// The graph with every task replaced by its topological position, so that edges go from small to large
// numbers.
struct Positions {
  explicit Positions(const TaskGraph& graph) : graph(graph), begin(graph.task_count() + 1) {
    const auto order = graph.topological_order();
    position = positions_in(order);
    for (std::uint32_t p = 0; p < order.size(); ++p)
      begin[p + 1] = begin[p] + static_cast<std::uint32_t>(graph.predecessors(order[p]).size());
    predecessors.resize(graph.edge_count());
    std::vector<std::uint32_t> next(begin.begin(), begin.end() - 1);
    for (std::uint32_t p = 0; p < order.size(); ++p)
      for (TaskId task : graph.successors(order[p])) predecessors[next[position[task.index()]]++] = p;
  }

  std::uint32_t count() const { return static_cast<std::uint32_t>(position.size()); }

  const TaskGraph& graph;
  std::vector<std::uint32_t> position;      // by task
  std::vector<std::uint32_t> begin;         // edges into p are at [begin[p], begin[p + 1])
  std::vector<std::uint32_t> predecessors;  // by edge, ascending for each p
};

// Only an edge that skips a level (longest path from a source) can have a longer way round. A task is watched
// from when it is reached until its last such edge has been decided.
std::vector<std::uint32_t> watched_until(const Positions& graph) {
  std::vector<std::uint32_t> level(graph.count()), until(graph.count(), kNone);
  for (std::uint32_t p = 0; p < graph.count(); ++p) {
    for (std::uint32_t e = graph.begin[p]; e < graph.begin[p + 1]; ++e)
      level[p] = std::max(level[p], level[graph.predecessors[e]] + 1);
    for (std::uint32_t e = graph.begin[p]; e < graph.begin[p + 1]; ++e)
      if (level[graph.predecessors[e]] + 1 < level[p]) until[graph.predecessors[e]] = p;
  }
  return until;
}

// Where each watched task's bit lies, and where each task's set of watched ancestors lies. Both places are
// used again once nobody looks at them any more, so their number is what is open at one time and not the
// graph's size.
struct Layout {
  explicit Layout(const Positions& graph)
      : until(watched_until(graph)),
        bit(graph.count(), kNone),
        row(graph.count(), kNone),
        reused_word(graph.count(), kNone) {
    std::vector<std::uint32_t> last_successor(graph.count(), kNone);
    for (std::uint32_t p = 0; p < graph.count(); ++p)
      for (std::uint32_t e = graph.begin[p]; e < graph.begin[p + 1]; ++e)
        last_successor[graph.predecessors[e]] = p;

    std::vector<std::uint32_t> free_words, free_rows, open_bits;
    std::uint32_t word = 0, bits_in_word = kBitsPerWord;
    for (std::uint32_t p = 0; p < graph.count(); ++p) {
      for (std::uint32_t e = graph.begin[p]; e < graph.begin[p + 1]; ++e) {
        const std::uint32_t u = graph.predecessors[e];
        if (last_successor[u] == p) free_rows.push_back(row[u]);
        if (until[u] != p) continue;
        const std::uint32_t w = bit[u] / kBitsPerWord;
        if (--open_bits[w] == 0 && (w != word || bits_in_word == kBitsPerWord)) free_words.push_back(w);
      }
      if (last_successor[p] != kNone) {
        if (free_rows.empty()) free_rows.push_back(row_count++);
        row[p] = free_rows.back();
        free_rows.pop_back();
      }
      if (until[p] == kNone) continue;
      if (bits_in_word == kBitsPerWord) {
        bits_in_word = 0;
        if (free_words.empty()) {
          word = word_count++;
          open_bits.push_back(0);
        } else {
          word = free_words.back();
          free_words.pop_back();
          reused_word[p] = word;
        }
      }
      bit[p] = word * kBitsPerWord + bits_in_word++;
      ++open_bits[word];
    }
  }

  std::vector<std::uint32_t> until;  // by position; kNone if not watched
  std::vector<std::uint32_t> bit;    // by position; kNone if not watched
  std::vector<std::uint32_t> row;    // by position; kNone if nothing follows
  std::vector<std::uint32_t>
      reused_word;  // the word that holds old bits when p takes its first bit, or kNone
  std::uint32_t word_count = 0, row_count = 0;
};

// Decides the edges whose start has its bit in the words [first, last). Walks the graph once in topological
// order with one set of watched ancestors per task. Latest predecessor first: a predecessor that the later
// ones already have among their ancestors has a longer way round, and adds no ancestor.
void drop_implied_edges(const Positions& graph, const Layout& layout, std::uint32_t first, std::uint32_t last,
                        std::vector<bool>& dropped) {
  const std::size_t width = last - first;
  std::vector<std::uint64_t> rows(layout.row_count * width), ancestors(width);
  for (std::uint32_t p = 0; p < graph.count(); ++p) {
    std::fill(ancestors.begin(), ancestors.end(), 0);
    for (std::uint32_t e = graph.begin[p + 1]; e-- > graph.begin[p];) {
      if (dropped[e]) continue;
      const std::uint32_t u = graph.predecessors[e];
      const std::uint32_t word = layout.bit[u] / kBitsPerWord;
      const bool watched = layout.until[u] != kNone && layout.until[u] >= p && word >= first && word < last;
      if (watched) {
        const std::uint64_t mask = std::uint64_t{1} << (layout.bit[u] % kBitsPerWord);
        if (ancestors[word - first] & mask) {
          dropped[e] = true;
          continue;
        }
        ancestors[word - first] |= mask;
      }
      const std::uint64_t* row = rows.data() + layout.row[u] * width;
      for (std::size_t w = 0; w < width; ++w) ancestors[w] |= row[w];
    }
    if (layout.row[p] != kNone)
      std::copy(ancestors.begin(), ancestors.end(),
                rows.begin() + static_cast<std::ptrdiff_t>(layout.row[p] * width));
    const std::uint32_t reused = layout.reused_word[p];
    if (reused != kNone && reused >= first && reused < last)
      for (std::size_t r = 0; r < layout.row_count; ++r) rows[r * width + reused - first] = 0;
  }
}

}  // namespace

TaskGraph minimum_equivalent_graph(const TaskGraph& graph, std::size_t most_bytes) {
  const Positions positions(graph);
  const Layout layout(positions);
  if (layout.word_count == 0) return graph;

  std::vector<bool> dropped(graph.edge_count());
  const std::size_t fitting = most_bytes / (layout.row_count * sizeof(std::uint64_t));
  const auto words_at_a_time =
      static_cast<std::uint32_t>(std::clamp<std::size_t>(fitting, 1, layout.word_count));
  for (std::uint32_t first = 0; first < layout.word_count; first += words_at_a_time)
    drop_implied_edges(positions, layout, first, std::min(first + words_at_a_time, layout.word_count),
                       dropped);

  std::vector<Edge> kept;
  kept.reserve(graph.edge_count());
  const auto order = graph.topological_order();
  for (std::uint32_t p = 0; p < positions.count(); ++p)
    for (std::uint32_t e = positions.begin[p]; e < positions.begin[p + 1]; ++e)
      if (!dropped[e]) kept.push_back({order[positions.predecessors[e]], order[p]});
  return graph.with_edges(kept);
}

}  // namespace nimble
