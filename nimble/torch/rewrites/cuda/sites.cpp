#include "nimble/torch/rewrites/cuda/sites.h"

#include <ATen/Context.h>

#include <algorithm>

#include "nimble/torch/rewrites/convolution.h"
#include "nimble/torch/tf32.h"

namespace nimble {
namespace {

using namespace convolution;

// Where one number stands for both directions, two.
std::vector<std::int64_t> pair(const c10::IValue& numbers) {
  const auto list = numbers.toIntVector();
  return {list.front(), list.back()};
}

}  // namespace

bool ImageConvolution::is_depthwise() const {
  return groups > 1 && groups == x.sizes[1] && weight.sizes[0] == groups && weight.sizes[1] == 1;
}

bool ImageConvolution::is_matrix_product() const {
  const auto all = [](const std::vector<std::int64_t>& numbers, std::int64_t number) {
    return std::all_of(numbers.begin(), numbers.end(), [=](std::int64_t n) { return n == number; });
  };
  return groups == 1 && weight.sizes[2] == 1 && weight.sizes[3] == 1 && all(stride, 1) && all(padding, 0);
}

std::optional<ImageConvolution> image_convolution(const Task& task, const Uses& uses) {
  if (!is_call_of(task, "aten::convolution") || value_argument(task, kTransposed).toBool()) return {};
  const TensorRef* x = tensor_argument(task, kInput);
  const TensorRef* weight = tensor_argument(task, kWeight);
  const TensorRef* bias = tensor_argument(task, kBias);
  if (!x || !weight || x->sizes.size() != 4) return {};
  if (!uses.is_weight(*weight) || (bias && !uses.is_weight(*bias))) return {};
  ImageConvolution convolution{.x = *x,
                               .weight = *weight,
                               .bias = bias ? std::optional(*bias) : std::nullopt,
                               .stride = pair(value_argument(task, kStride)),
                               .padding = pair(value_argument(task, kPadding)),
                               .dilation = pair(value_argument(task, kDilation)),
                               .groups = value_argument(task, kGroups).toInt()};
  return is_of_one_type(convolution) ? std::optional(std::move(convolution)) : std::nullopt;
}

bool is_of_one_type(const ImageConvolution& convolution) {
  const at::ScalarType type = convolution.x.dtype;
  return (type == at::kFloat || type == at::kHalf || type == at::kBFloat16) &&
         convolution.weight.dtype == type && (!convolution.bias || convolution.bias->dtype == type);
}

std::optional<std::string> fusible_activation(const Task& task) {
  if (!task.op.operator_name().overload_name.empty()) return {};  // writes to a tensor that it is given
  for (const char* name : {"relu", "silu", "hardswish", "sigmoid"}) {
    if (is_call_of(task, std::string("aten::") + name)) return name;
  }
  if (is_call_of(task, "aten::gelu")) {
    return value_argument(task, 1).toStringRef() == "tanh" ? "gelu_tanh" : "gelu";
  }
  if (is_call_of(task, "aten::hardtanh")) {
    const bool six = value_argument(task, 1).toScalar().toDouble() == 0 &&
                     value_argument(task, 2).toScalar().toDouble() == 6;
    if (six) return "relu6";
  }
  return {};
}

std::optional<Sum> plain_sum(const Task& task) {
  if (!is_call_of(task, "aten::add") || task.op.operator_name().overload_name != "Tensor") return {};
  const TensorRef* a = tensor_argument(task, 0);
  const TensorRef* b = tensor_argument(task, 1);
  if (!a || !b || a->sizes != b->sizes || a->dtype != b->dtype) return {};
  if (!value_argument(task, 2).toScalar().equal(1)) return {};
  return Sum{*a, *b};
}

std::vector<std::size_t> depths(const Program& program) {
  std::vector<std::size_t> of_task, of_buffer(program.buffers.size());
  for (const Task& task : program.tasks) {
    std::size_t depth = 0;
    for (const TensorRef& ref : task.reads) depth = std::max(depth, of_buffer[ref.buffer.index()]);
    of_task.push_back(++depth);
    for (const TensorRef& ref : task.writes) {
      auto& known = of_buffer[ref.buffer.index()];
      known = std::max(known, depth);
    }
  }
  return of_task;
}

std::vector<std::size_t> heights(const Program& program) {
  std::vector<std::size_t> of_task(program.tasks.size()), of_buffer(program.buffers.size());
  for (std::size_t i = program.tasks.size(); i-- > 0;) {
    const Task& task = program.tasks[i];
    std::size_t height = 0;
    for (const TensorRef& ref : task.writes) height = std::max(height, of_buffer[ref.buffer.index()]);
    of_task[i] = ++height;
    for (const TensorRef& ref : task.reads) {
      auto& known = of_buffer[ref.buffer.index()];
      known = std::max(known, height);
    }
  }
  return of_task;
}

std::size_t depth_of(std::span<const TensorRef> tensors, const Uses& uses,
                     std::span<const std::size_t> depths, TaskId reader) {
  std::size_t depth = 0;
  for (const TensorRef& ref : tensors) {
    if (uses.is_weight(ref)) continue;
    for (const TaskId writer : uses.writers(ref.buffer)) {
      if (writer < reader) depth = std::max(depth, depths[writer.index()]);
    }
  }
  return depth;
}

bool may_use_tensor_cores(at::ScalarType type) {
  return type != at::kFloat || allows_tf32(at::Float32Op::CONV);
}

void add_defaults(const c10::OperatorHandle& op, std::vector<Operand>& arguments) {
  const auto& all = op.schema().arguments();
  for (std::size_t a = arguments.size(); a < all.size(); ++a) arguments.emplace_back(*all[a].default_value());
}

bool is_contiguous(const TensorRef& ref) {
  std::int64_t stride = 1;
  for (std::size_t d = ref.sizes.size(); d-- > 0;) {
    if (ref.sizes[d] != 1 && ref.strides[d] != stride) return false;
    stride *= ref.sizes[d];
  }
  return true;
}

bool is_channels_last(const TensorRef& ref) {
  return ref.sizes.size() == 4 && ref.strides[1] == 1 && (ref.sizes[3] == 1 || ref.strides[3] != 1);
}

at::DimVector channels_last_strides(at::IntArrayRef sizes) {
  return {sizes[1] * sizes[2] * sizes[3], 1, sizes[1] * sizes[3], sizes[1]};
}

}  // namespace nimble
