#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "nimble/engine/host.h"

namespace nimble {

// Which results of a function's eager runs a loss went back from: perhaps not all of them.
class UsedResults {
 public:
  // Watches the results of one more eager run.
  static void observe(const std::shared_ptr<UsedResults>& used, const Tensors& inputs,
                      const Tensors& outputs);

  // By result that is differentiable: whether it was used, the last time that anybody went backward.
  std::optional<std::vector<bool>> seen() const;
  bool vary() const;  // from run to run

 private:
  std::size_t begin(std::size_t results);  // the number of the run
  void saw(std::size_t run, std::size_t result);

  mutable std::mutex mutex_;
  std::vector<std::vector<bool>> runs_;
};

// The derivative of a recorded function: what its backward pass takes and gives.
struct Derivative {
  std::vector<std::size_t> results;     // those that gradients are given for
  std::vector<std::size_t> not_used;    // those that require grad and that no loss went back from
  std::vector<std::size_t> wrt_inputs;  // inputs that gradients are made for, ...
  Tensors wrt_leaves;                   // ... and parameters; of both only those that get one

  // Gradients for the results, filled with numbers of no meaning: to record and to check with.
  Tensors some_gradients(const Tensors& outputs) const;

  // What eager code makes of such gradients, by input and leaf.
  Tensors eagerly(const Tensors& inputs, const Tensors& outputs, const Tensors& gradients) const;
};

// The results that an eager run would let a loss go back from: they are part of a graph, and made here.
std::vector<std::size_t> differentiable_results(const Tensors& inputs, const Tensors& outputs);

// Goes back once through the graph of a recorded run and records that as a part of its own. The graph stays
// as it is. Adds the gradients that were made to `made`.
Derivative record_derivative(const Tensors& inputs, const Tensors& outputs, ProgramBuilder& builder,
                             Host& host, const UsedResults& used, Tensors& made);

}  // namespace nimble
