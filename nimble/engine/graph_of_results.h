#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "nimble/backend/executable.h"

namespace torch::autograd {
struct Node;
}

namespace nimble {

// Autograd's graph of the results of one run. One may have been computed from another (a loss from the logits
// that are returned with it): a gradient for the first then goes back through the second.

// Visits each edge of the graph by which a gradient arrives at one of the results: the node that it comes
// from, which of that node's edges it is, and which result.
using EdgeVisit = std::function<void(torch::autograd::Node& from, std::size_t edge, std::size_t result)>;
void for_each_edge_between(const Tensors& results, const EdgeVisit& visit);

// By result, and by other result: whether that one was computed from this one.
using Nesting = std::vector<std::vector<bool>>;
Nesting nesting_of(const Tensors& results);

// Nobody gives a gradient for the n-th result, yet one goes back through it: of a result that was computed
// from it.
bool is_passed_through(const Nesting& nesting, std::size_t n, const std::vector<bool>& given);

}  // namespace nimble
