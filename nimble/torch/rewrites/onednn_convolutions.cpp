// Convolutions by oneDNN, with weights that are brought into its own layout once and what follows them in the
// same kernel, as operators.

#include <ATen/ATen.h>
#include <torch/library.h>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/packed.h"
#include "nimble/torch/rewrites/onednn.h"

namespace nimble {
namespace {

using Scalars = c10::List<std::optional<at::Scalar>>;

// `activation` is one of oneDNN's, or "none"; `other`, where given, is added before it.
at::Tensor mkldnn_convolution(const at::Tensor& input, const at::Tensor& weight,
                              const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& other,
                              const c10::intrusive_ptr<Packed>& packed, at::IntArrayRef padding,
                              at::IntArrayRef stride, at::IntArrayRef dilation, std::int64_t groups,
                              c10::string_view activation, at::ArrayRef<double> numbers,
                              c10::string_view algorithm) {
  using Reorder = at::Tensor(const at::Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                             std::int64_t, at::OptionalIntArrayRef);
  using Unary = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                           at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t, c10::string_view,
                           Scalars, std::optional<c10::string_view>);
  using Binary = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const std::optional<at::Tensor>&, at::IntArrayRef, at::IntArrayRef,
                            at::IntArrayRef, std::int64_t, c10::string_view, std::optional<at::Scalar>,
                            std::optional<c10::string_view>, Scalars, std::optional<c10::string_view>);
  static const auto reorder = find_operator("mkldnn::_reorder_convolution_weight").typed<Reorder>();
  static const auto unary = find_operator("mkldnn::_convolution_pointwise").typed<Unary>();
  static const auto binary = find_operator("mkldnn::_convolution_pointwise", "binary").typed<Binary>();
  const at::Tensor& ready =
      packed->get([&] { return reorder.call(weight, padding, stride, dilation, groups, input.sizes()); });
  if (!other) {
    return unary.call(input, ready, bias, padding, stride, dilation, groups, activation,
                      onednn_scalars(numbers), algorithm);
  }
  const auto after = activation == "none" ? std::nullopt : std::optional(activation);
  return binary.call(input, *other, ready, bias, padding, stride, dilation, groups, "add", at::Scalar(1.0),
                     after, onednn_scalars(numbers), algorithm);
}

at::Tensor mkldnn_transposed_convolution(const at::Tensor& input, const at::Tensor& weight,
                                         const std::optional<at::Tensor>& bias,
                                         const c10::intrusive_ptr<Packed>& packed, at::IntArrayRef padding,
                                         at::IntArrayRef output_padding, at::IntArrayRef stride,
                                         at::IntArrayRef dilation, std::int64_t groups,
                                         c10::string_view activation, at::ArrayRef<double> numbers,
                                         c10::string_view algorithm) {
  using Reorder = at::Tensor(const at::Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                             at::IntArrayRef, std::int64_t, at::OptionalIntArrayRef);
  using Unary = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                           at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t,
                           c10::string_view, Scalars, std::optional<c10::string_view>);
  static const auto reorder = find_operator("mkldnn::_reorder_convolution_transpose_weight").typed<Reorder>();
  static const auto unary = find_operator("mkldnn::_convolution_transpose_pointwise").typed<Unary>();
  const at::Tensor& ready = packed->get(
      [&] { return reorder.call(weight, padding, output_padding, stride, dilation, groups, input.sizes()); });
  return unary.call(input, ready, bias, padding, output_padding, stride, dilation, groups, activation,
                    onednn_scalars(numbers), algorithm);
}

}  // namespace
}  // namespace nimble

TORCH_LIBRARY_FRAGMENT(nimble, library) {
  library.def(
      "mkldnn_convolution(Tensor input, Tensor weight, Tensor? bias, Tensor? other, "
      "__torch__.torch.classes.nimble.Packed packed, int[] padding, int[] stride, int[] dilation, int "
      "groups, str activation, float[] numbers, str algorithm) -> Tensor",
      torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(nimble::mkldnn_convolution)));
  library.def(
      "mkldnn_transposed_convolution(Tensor input, Tensor weight, Tensor? bias, "
      "__torch__.torch.classes.nimble.Packed packed, int[] padding, int[] output_padding, int[] stride, "
      "int[] dilation, int groups, str activation, float[] numbers, str algorithm) -> Tensor",
      torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(nimble::mkldnn_transposed_convolution)));
}
