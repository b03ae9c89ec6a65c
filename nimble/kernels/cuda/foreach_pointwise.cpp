#include "nimble/kernels/foreach_pointwise.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "nimble/kernels/cuda/expression_call.h"
#include "nimble/kernels/cuda/images.h"
#include "nimble/kernels/cuda/launch.h"
#include "nimble/kernels/element_source.h"

namespace nimble::kernels {
namespace {

// New lists for the results that are not written in place, laid out as the tensors that are worked on.
void make_lists(Lists& lists, std::span<const ListForm> forms, std::size_t count) {
  const auto model = lists.all()[static_cast<std::size_t>(
      std::ranges::find(forms, false, &ListForm::is_number) - forms.begin())];
  for (std::size_t n = 0; n < count; ++n) {
    auto& list = lists.made.emplace_back();
    for (const at::Tensor& tensor : model) {
      list.push_back(at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()));
    }
  }
}

std::vector<at::Tensor> foreach_pointwise_cuda(at::TensorList written, at::TensorList read,
                                               std::string_view text, std::int64_t count) {
  const Expression expression = parse_expression(text);
  Lists lists = lists_of_call(expression, written, read, count);
  std::vector<ListForm> forms = forms_of(lists);
  const bool has_kernel = !forms.empty() && are_on_cuda_or_nowhere(written) && are_on_cuda_or_nowhere(read) &&
                          std::ranges::all_of(expression.steps, kernels::has_kernel);
  if (!has_kernel) return foreach_pointwise(written, read, text, count);

  const at::Tensor& any = lists.all().front().front();
  const auto guard = on_device_of(any);
  const std::size_t made = expression.results.size() - lists.written.size();
  make_lists(lists, forms, made);
  const ListForm worked_on = *std::ranges::find(forms, false, &ListForm::is_number);
  forms.insert(forms.end(), made, worked_on);
  KernelSource kernel = foreach_source(expression, forms, lists.written.size());
  if (any.is_meta()) {
    launch_with_table(kernel, {});
  } else {
    for (const TableLaunch& part : table_launches(lists)) {
      kernel.blocks = part.blocks;
      launch_with_table(kernel, part.table);
    }
  }
  std::vector<at::Tensor> returned;
  for (const auto& list : lists.made) returned.insert(returned.end(), list.begin(), list.end());
  return returned;
}

TORCH_LIBRARY_IMPL(nimble, CUDA, library) { library.impl("foreach_pointwise", foreach_pointwise_cuda); }

// Without memory it tells shapes, and which kernel it needs.
TORCH_LIBRARY_IMPL(nimble, Meta, library) { library.impl("foreach_pointwise", foreach_pointwise_cuda); }

}  // namespace
}  // namespace nimble::kernels
