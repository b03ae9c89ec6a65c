#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "nimble/engine/graph_of_results.h"
#include "nimble/engine/host.h"

namespace nimble {

// Which results of a function's eager runs a loss went back from: perhaps not all of them. A gradient that
// arrives at one result from another, within the function's own graph, is no such use.
class UsedResults {
 public:
  // Watches the results of one more eager run.
  static void observe(const std::shared_ptr<UsedResults>& used, const Tensors& inputs,
                      const Tensors& outputs);

  // By result that is differentiable: whether it was used in some run. Nothing before anybody went backward.
  std::optional<std::vector<bool>> seen() const;
  // From run to run, so that no one backward pass does for all.
  bool vary() const;

 private:
  struct Run {
    std::vector<bool> used;
    Nesting nesting;
  };
  std::size_t begin(Run run);  // the number of the run
  void saw(std::size_t run, std::size_t result);

  mutable std::mutex mutex_;
  std::vector<Run> runs_;
};

// The derivative of a recorded function: what its backward pass takes and gives.
struct Derivative {
  std::vector<std::size_t> results;     // those that gradients are given for
  std::vector<std::size_t> not_used;    // those that require grad and that no loss went back from
  std::vector<std::size_t> wrt_inputs;  // inputs that gradients are made for, ...
  Tensors wrt_leaves;                   // ... and parameters; of both only those that get one
  Nesting nesting;                      // of `results`

  // A loss went back from a result that this gives no gradients for.
  bool lacks_a_result_of(const UsedResults& used) const;

  // Gradients for the results, filled with numbers of no meaning: to record and to check with.
  Tensors some_gradients(const Tensors& outputs) const;

  // What eager code makes of such gradients, by input and leaf.
  Tensors eagerly(const Tensors& inputs, const Tensors& outputs, const Tensors& gradients) const;
};

// The results that an eager run would let a loss go back from: they are part of a graph, and made here.
std::vector<std::size_t> differentiable_results(const Tensors& inputs, const Tensors& outputs);

// Whether an argument was computed from another one, or from a parameter that the function uses as well:
// going back from the results, a gradient for the latter would be made by way of the former, and autograd
// would do the same outside once more.
bool computed_from_one_another(const Tensors& inputs, const ProgramBuilder& builder);

// Goes back once through the graph of a recorded run and records that as a part of its own. The graph stays
// as it is. Adds the gradients that were made to `made`.
Derivative record_derivative(const Tensors& inputs, const Tensors& outputs, ProgramBuilder& builder,
                             Host& host, const UsedResults& used, Tensors& made);

}  // namespace nimble
