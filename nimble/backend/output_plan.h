#pragma once

#include <c10/util/FunctionRef.h>

#include <memory>
#include <span>
#include <vector>

#include "nimble/backend/executable.h"
#include "nimble/torch/program.h"

namespace nimble {

// How the results of a replay are put together, worked out once: what was passed in or lives outside as
// itself, everything else as a view of a storage of its buffer.
class OutputPlan {
 public:
  explicit OutputPlan(std::shared_ptr<const Program> program);

  // `result_storage` gives the storage of a buffer that a task made. It is asked once for each, so outputs
  // that share memory in the program share it here.
  using ResultStorage = c10::function_ref<c10::Storage(BufferId)>;
  Tensors collect(std::span<const at::Tensor> inputs, ResultStorage result_storage) const;

 private:
  enum class From { kInput, kEarlierOutput, kOutside, kViewOfInput, kResult };
  struct Recipe {
    From from;
    std::size_t index = 0;  // of the input, the earlier output or, for a result, in `results_`
  };

  std::shared_ptr<const Program> program_;
  std::vector<Recipe> recipes_;    // by output
  std::vector<BufferId> results_;  // each once
};

}  // namespace nimble
