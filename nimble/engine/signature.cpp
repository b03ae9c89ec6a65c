#include "nimble/engine/signature.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <algorithm>
#include <bit>

#include "nimble/torch/tensor_ref.h"
#include "nimble/torch/tf32.h"

namespace nimble {
namespace {

const void* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

std::size_t first_with_same_storage(std::span<const at::Tensor> inputs, std::size_t i) {
  for (std::size_t j = 0; j < i; ++j) {
    if (storage_of(inputs[j]) == storage_of(inputs[i]) && storage_of(inputs[i])) return j;
  }
  return i;
}

std::int64_t offset_bytes(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage_offset() * static_cast<std::int64_t>(tensor.itemsize()) : 0;
}

// cuBLAS and vectorized kernels are chosen by the largest power of two that divides an address, up to 256.
constexpr std::uint32_t kBestAlignment = 256;

// Reductions (sum, softmax) read up to the next full vector first, so how far an address lies from one
// changes the order in which they add.
std::uint32_t vector_bytes(const at::Tensor& tensor) {
  return std::max<std::uint32_t>(16, 4 * static_cast<std::uint32_t>(tensor.itemsize()));
}

// Two tensors with the same alignment make kernels do the same. A captured kernel keeps doing what it was
// captured for; kernels on the CPU look at the memory at each call.
std::uint32_t alignment_of(const at::Tensor& tensor) {
  if (!tensor.is_cuda() || !tensor.has_storage()) return 0;
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  if (const auto past_a_vector = static_cast<std::uint32_t>(address % vector_bytes(tensor)))
    return past_a_vector;
  return std::uint32_t{1} << std::countr_zero(address | kBestAlignment);
}

}  // namespace

Settings Settings::here() {
  const auto& context = at::globalContext();
  return {.grad_mode = c10::GradMode::is_enabled(),
          .anomaly_mode = torch::autograd::AnomalyMode::is_enabled(),
          .autocast_cpu = at::autocast::is_autocast_enabled(at::kCPU),
          .autocast_cuda = at::autocast::is_autocast_enabled(at::kCUDA),
          .autocast_cpu_dtype = at::autocast::get_autocast_dtype(at::kCPU),
          .autocast_cuda_dtype = at::autocast::get_autocast_dtype(at::kCUDA),
          .tf32_products = allows_tf32(at::Float32Op::MATMUL),
          .tf32_convolutions = allows_tf32(at::Float32Op::CONV),
          .tf32_recurrences = allows_tf32(at::Float32Op::RNN),
          .sums_in_half = context.allowFP16ReductionCuBLAS(),
          .sums_in_bfloat = context.allowBF16ReductionCuBLAS(),
          .accumulates_in_half = context.allowFP16AccumulationCuBLAS(),
          .cudnn_enabled = context.userEnabledCuDNN(),
          .cudnn_benchmark = context.benchmarkCuDNN(),
          .cudnn_deterministic = context.deterministicCuDNN(),
          .deterministic = context.deterministicAlgorithms(),
          .flash_attention = context.userEnabledFlashSDP(),
          .efficient_attention = context.userEnabledMemEfficientSDP(),
          .math_attention = context.userEnabledMathSDP(),
          .cudnn_attention = context.userEnabledCuDNNSDP(),
          .threads = at::get_num_threads(),
          .default_dtype = c10::get_default_dtype_as_scalartype()};
}

Signature::Input Signature::Input::of(std::span<const at::Tensor> inputs, std::size_t i) {
  const at::Tensor& tensor = inputs[i];
  if (!tensor.defined()) return {.dtype = at::ScalarType::Undefined, .device = c10::kCPU};
  const std::size_t first = first_with_same_storage(inputs, i);
  const bool strided = tensor.layout() == at::kStrided;
  return {.sizes = at::DimVector(tensor.sizes()),
          .strides = strided ? at::DimVector(tensor.strides()) : at::DimVector(),
          .dtype = tensor.scalar_type(),
          .device = tensor.device(),
          .requires_grad = tensor.requires_grad(),
          .conjugate = tensor.is_conj(),
          .negative = tensor.is_neg(),
          .shares_with = first,
          .distance = offset_bytes(tensor) - offset_bytes(inputs[first]),
          .alignment = alignment_of(tensor)};
}

bool Signature::Input::matches(std::span<const at::Tensor> inputs, std::size_t i) const {
  const at::Tensor& tensor = inputs[i];
  if (!tensor.defined()) return dtype == at::ScalarType::Undefined;
  if (tensor.layout() != at::kStrided || tensor.scalar_type() != dtype || tensor.device() != device ||
      tensor.sizes() != at::IntArrayRef(sizes) || tensor.strides() != at::IntArrayRef(strides) ||
      tensor.requires_grad() != requires_grad || tensor.is_conj() != conjugate ||
      tensor.is_neg() != negative || alignment_of(tensor) != alignment) {
    return false;
  }
  const std::size_t first = first_with_same_storage(inputs, i);
  return first == shares_with && offset_bytes(tensor) - offset_bytes(inputs[first]) == distance;
}

Signature::Signature(std::span<const at::Tensor> inputs, std::int64_t variant)
    : variant_(variant), settings_(Settings::here()) {
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs_.push_back(Input::of(inputs, i));
}

bool Signature::matches(std::span<const at::Tensor> inputs, std::int64_t variant,
                        const Settings& settings) const {
  if (variant != variant_ || inputs.size() != inputs_.size() || !(settings == settings_)) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs_[i].matches(inputs, i)) return false;
  }
  return true;
}

std::string Signature::to_string() const {
  std::string text = "(";
  for (const Input& input : inputs_) {
    TensorRef ref;
    ref.sizes = input.sizes;
    ref.strides = input.strides;
    ref.dtype = input.dtype;
    if (text.size() > 1) text += ", ";
    text += input.dtype == at::ScalarType::Undefined ? "undefined" : nimble::to_string(ref);
    if (!input.device.is_cpu()) text += " on " + input.device.str();
    if (input.alignment && input.alignment != kBestAlignment) {
      text += " at an address like " + std::to_string(input.alignment) + " modulo 256";
    }
  }
  text += ')';
  if (settings_.grad_mode) text += " with grad";
  if (settings_.autocast_cpu || settings_.autocast_cuda) text += " under autocast";
  return text;
}

}  // namespace nimble
