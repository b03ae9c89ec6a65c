#include "nimble/backend/output_plan.h"

#include <c10/util/SmallVector.h>

#include <algorithm>

namespace nimble {

OutputPlan::OutputPlan(std::shared_ptr<const Program> program) : program_(std::move(program)) {
  for (const Output& output : program_->outputs) {
    const BufferId buffer = output.ref.buffer;
    if (output.same_as_input) {
      recipes_.push_back({From::kInput, *output.same_as_input});
    } else if (output.same_as_output) {
      recipes_.push_back({From::kEarlierOutput, *output.same_as_output});
    } else if (output.outside.defined()) {
      recipes_.push_back({From::kOutside});
    } else if (program_->buffer(buffer).kind == BufferKind::kInput) {
      const auto& inputs = program_->inputs;
      const auto source = std::find_if(inputs.begin(), inputs.end(),
                                       [&](const TensorRef& input) { return input.buffer == buffer; });
      recipes_.push_back({From::kViewOfInput, static_cast<std::size_t>(source - inputs.begin())});
    } else {
      const auto known = std::find(results_.begin(), results_.end(), buffer);
      recipes_.push_back({From::kResult, static_cast<std::size_t>(known - results_.begin())});
      if (known == results_.end()) results_.push_back(buffer);
    }
  }
}

Tensors OutputPlan::collect(std::span<const at::Tensor> inputs, ResultStorage result_storage) const {
  c10::SmallVector<c10::Storage, 4> storages;
  for (const BufferId buffer : results_) storages.push_back(result_storage(buffer));
  Tensors outputs;
  outputs.reserve(recipes_.size());
  for (std::size_t i = 0; i < recipes_.size(); ++i) {
    const auto [from, index] = recipes_[i];
    const Output& output = program_->outputs[i];
    switch (from) {
      case From::kInput:
        outputs.push_back(inputs[index]);
        break;
      case From::kEarlierOutput:
        outputs.push_back(outputs[index]);
        break;
      case From::kOutside:
        outputs.push_back(output.outside);
        break;
      case From::kViewOfInput: {
        TensorRef ref = output.ref;
        ref.offset += inputs[index].storage_offset() - program_->inputs[index].offset;
        outputs.push_back(materialize(ref, inputs[index].storage()));
        break;
      }
      case From::kResult:
        outputs.push_back(materialize(output.ref, storages[index]));
        break;
    }
  }
  return outputs;
}

}  // namespace nimble
