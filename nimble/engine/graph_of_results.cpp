#include "nimble/engine/graph_of_results.h"

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>
#include <unordered_set>

namespace nimble {
namespace {

using GradientEdge = torch::autograd::Edge;  // a schedule has edges, too
using torch::autograd::Node;

std::unordered_map<GradientEdge, std::size_t> edges_of(const Tensors& results) {
  std::unordered_map<GradientEdge, std::size_t> edges;
  for (std::size_t n = 0; n < results.size(); ++n) {
    edges.try_emplace(torch::autograd::impl::gradient_edge(results[n]), n);
  }
  return edges;
}

template <class Visit>
void for_each_edge_behind(std::vector<Node*> nodes, Visit&& visit) {
  std::unordered_set<const Node*> met(nodes.begin(), nodes.end());
  while (!nodes.empty()) {
    Node& node = *nodes.back();
    nodes.pop_back();
    for (std::size_t e = 0; e < node.num_outputs(); ++e) {
      const GradientEdge& edge = node.next_edge(e);
      if (!edge.is_valid()) continue;
      visit(node, e, edge);
      if (met.insert(edge.function.get()).second) nodes.push_back(edge.function.get());
    }
  }
}

}  // namespace

void for_each_edge_between(const Tensors& results, const EdgeVisit& visit) {
  const auto edges = edges_of(results);
  std::unordered_set<Node*> nodes;
  for (const auto& [edge, n] : edges) nodes.insert(edge.function.get());
  for_each_edge_behind({nodes.begin(), nodes.end()},
                       [&](Node& from, std::size_t e, const GradientEdge& edge) {
                         if (const auto found = edges.find(edge); found != edges.end())
                           visit(from, e, found->second);
                       });
}

Nesting nesting_of(const Tensors& results) {
  const auto edges = edges_of(results);
  Nesting nesting(results.size(), std::vector<bool>(results.size()));
  for (const auto& [outer, m] : edges) {
    for_each_edge_behind({outer.function.get()}, [&](Node&, std::size_t, const GradientEdge& edge) {
      if (const auto found = edges.find(edge); found != edges.end()) nesting[found->second][m] = true;
    });
  }
  return nesting;
}

bool is_passed_through(const Nesting& nesting, std::size_t n, const std::vector<bool>& given) {
  for (std::size_t m = 0; m < given.size(); ++m) {
    if (given[m] && nesting[n][m]) return true;
  }
  return false;
}

}  // namespace nimble
