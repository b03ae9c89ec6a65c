#include "nimble/torch/rewrites/cuda/matrix_kernel.h"

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/edit.h"

namespace nimble {
namespace {

// Neighbouring pixels of a filter lie beside each other, with all of their channels.
bool has_whole_filters(const TensorRef& weight) {
  const std::int64_t channels = weight.sizes[1], width = weight.sizes[3];
  return (width == 1 || weight.strides[3] == channels) &&
         (weight.sizes[2] == 1 || weight.strides[2] == width * channels);
}

std::optional<TensorRef> optional_tensor(const Task& task, std::size_t n) {
  const TensorRef* ref = tensor_argument(task, n);
  return ref ? std::optional(*ref) : std::nullopt;
}

// All of ours begin with x, weight, bias and what is added.
std::optional<ConvolutionCall> call_of_ours(const Task& task) {
  const bool of_one_pixel = is_call_of(task, "nimble::pointwise_convolution"),
             by_our_kernel = is_call_of(task, "nimble::matrix_convolution"),
             by_cudnn = is_call_of(task, "nimble::fused_convolution");
  if ((!of_one_pixel && !by_our_kernel && !by_cudnn) || !task.op.operator_name().overload_name.empty())
    return {};
  const auto argument = [&](const char* name) { return *task.op.schema().argumentIndexWithName(name); };
  if (by_our_kernel && tensor_argument(task, argument("filters"))) return {};
  ConvolutionCall call{.convolution = {.x = *tensor_argument(task, 0),
                                       .weight = *tensor_argument(task, 1),
                                       .bias = optional_tensor(task, 2),
                                       .stride = {1, 1},
                                       .padding = {0, 0},
                                       .dilation = {1, 1},
                                       .groups = 1},
                       .added = optional_tensor(task, 3),
                       .after = value_argument(task, argument("activation")).toStringRef()};
  if (of_one_pixel) return call;
  call.convolution.stride = value_argument(task, argument("stride")).toIntVector();
  call.convolution.padding = value_argument(task, argument("padding")).toIntVector();
  call.convolution.dilation = value_argument(task, argument("dilation")).toIntVector();
  if (by_cudnn) call.convolution.groups = value_argument(task, argument("groups")).toInt();
  return call;
}

}  // namespace

std::optional<ConvolutionCall> convolution_call(const Task& task, const Uses& uses) {
  if (auto ours = call_of_ours(task)) return ours;
  if (auto plain = image_convolution(task, uses)) return ConvolutionCall{*std::move(plain)};
  const bool adds = is_call_of(task, "aten::cudnn_convolution_add_relu");
  if (!adds && !is_call_of(task, "aten::cudnn_convolution_relu")) return {};
  const auto is_one = [](const c10::IValue& factor) {
    return factor.isNone() || factor.toScalar().toDouble() == 1;
  };
  if (adds && !is_one(value_argument(task, 3))) return {};
  const std::size_t rest = adds ? 4 : 2;  // after what is added, and its factor
  ConvolutionCall call{.convolution = {.x = *tensor_argument(task, 0),
                                       .weight = *tensor_argument(task, 1),
                                       .bias = optional_tensor(task, rest),
                                       .stride = value_argument(task, rest + 1).toIntVector(),
                                       .padding = value_argument(task, rest + 2).toIntVector(),
                                       .dilation = value_argument(task, rest + 3).toIntVector(),
                                       .groups = value_argument(task, rest + 4).toInt()},
                       .after = "relu"};
  if (adds) call.added = *tensor_argument(task, 2);
  return is_of_one_type(call.convolution) ? std::optional(std::move(call)) : std::nullopt;
}

bool fits_matrix_kernel(const ImageConvolution& c) {
  const bool whole_bias = !c.bias || c.bias->strides[0] == 1 || c.bias->sizes[0] == 1;
  return c.groups == 1 && is_channels_last(c.weight) && has_whole_filters(c.weight) && whole_bias &&
         may_use_tensor_cores(c.x.dtype);
}

bool suits_matrix_kernel(const ImageConvolution& c) {
  constexpr std::int64_t kFewChannels = 16;
  return is_channels_last(c.x) && (c.is_matrix_product() || c.x.sizes[1] >= kFewChannels) &&
         fits_matrix_kernel(c);
}

std::vector<Operand> product_arguments(const c10::OperatorHandle& op, const ConvolutionCall& call,
                                       std::int64_t number) {
  const ImageConvolution& c = call.convolution;
  std::vector<Operand> arguments = {c.x,
                                    c.weight,
                                    optional_ref(c.bias),
                                    optional_ref(call.added),
                                    c10::IValue(call.after),
                                    c10::IValue(number)};
  if (!c.is_matrix_product()) {
    const Operand none = c10::IValue();
    arguments.insert(arguments.end(), {none, none, Operand(c10::IValue(c.stride)),
                                       Operand(c10::IValue(c.padding)), Operand(c10::IValue(c.dilation))});
  }
  add_defaults(op, arguments);
  return arguments;
}

std::vector<MatrixWay> matrix_ways(const ConvolutionCall& call, bool precise) {
  static const auto op = find_operator("nimble::matrix_convolution");
  constexpr std::int64_t kTiles = 2;      // each is a kernel to compile, and the others seldom win
  constexpr std::int64_t kLongSum = 512;  // in shorter ones there is time for the parts of a float32
  std::vector<MatrixWay> ways;
  for (std::int64_t n = 0; n < kTiles; ++n) {
    ways.push_back({"matrix_convolution " + std::to_string(n), product_arguments(op, call, n)});
  }
  const TensorRef& weight = call.convolution.weight;
  const std::int64_t summed = weight.sizes[1] * weight.sizes[2] * weight.sizes[3];
  if (precise || weight.dtype != at::kFloat || summed < kLongSum) return ways;
  ways.push_back({"matrix_convolution by TF32", ways[0].arguments});
  ways.back().arguments[*op.schema().argumentIndexWithName("tf32")] = c10::IValue(true);
  return ways;
}

}  // namespace nimble
