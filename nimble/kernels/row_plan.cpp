#include "nimble/kernels/row_plan.h"

#include <algorithm>
#include <limits>

#include "nimble/kernels/row_steps.h"

namespace nimble::kernels {

std::optional<RowPlan> RowPlan::of(const Expression& expression, at::TensorList inputs,
                                   at::TensorList steps) {
  RowPlan plan;
  if (!plan.find_shape(expression, inputs, steps) || !plan.find_forms(expression, inputs, steps)) return {};
  plan.find_passes(expression);
  return plan;
}

// All steps over rows look at rows of the same shape.
bool RowPlan::find_shape(const Expression& expression, at::TensorList inputs, at::TensorList steps) {
  for (const Step& step : expression.steps) {
    if (!is_over_rows(step)) continue;
    const Value& value = std::get<Value>(step.arguments[0]);
    const at::Tensor& x = (value.kind == Value::Kind::kInput ? inputs : steps)[value.index];
    const auto along = row_dimensions(step, x);
    if (along_ == 0) {
      shape_ = x.sizes();
      along_ = along;
    }
    if (along == 0 || along != along_ || x.sizes() != shape_) return false;
  }
  return along_ != 0;
}

std::optional<RowPlan::Form> RowPlan::form_of(at::IntArrayRef sizes) const {
  if (sizes == shape_) return Form::kRows;
  if (sizes == shape_of_rows()) return Form::kDropped;
  std::vector<std::int64_t> kept(shape_.begin(), shape_.end());
  std::fill_n(kept.rbegin(), along_, 1);
  return sizes == kept ? std::optional(Form::kKept) : std::nullopt;
}

bool RowPlan::find_forms(const Expression& expression, at::TensorList inputs, at::TensorList steps) {
  input_lacks_row_.assign(inputs.size(), false);
  std::vector<bool> input_is_aligned(inputs.size(), false);
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const auto form = form_of(steps[s].sizes());
    if (!form) return false;
    forms_.push_back(*form);
    const bool over_rows = is_over_rows(expression.steps[s]);
    for (const Argument& argument : expression.steps[s].arguments) {
      const auto* value = std::get_if<Value>(&argument);
      if (!value) continue;
      if (value->kind == Value::Kind::kInput) {
        const bool lacks_row = !over_rows && *form == Form::kDropped;
        (lacks_row ? input_lacks_row_ : input_is_aligned)[value->index] = true;
        continue;
      }
      if (over_rows) continue;  // they look at rows: see find_shape
      const Form given = forms_[value->index];
      // An element of a row is none of its numbers, and numbers that lack the row's dimensions would be
      // broadcast along the wrong ones.
      if (given == Form::kRows && *form != Form::kRows) return false;
      const bool is_misread = given == Form::kDropped && *form != Form::kDropped && rows() > 1;
      if (is_misread && !is_view(expression.steps[s])) return false;
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (input_lacks_row_[i] && input_is_aligned[i] && inputs[i].numel() > 1) return false;
  }
  return true;
}

void RowPlan::find_passes(const Expression& expression) {
  const auto& steps = expression.steps;
  for (const Step& step : steps) {
    std::size_t pass = 0;
    for (const Argument& argument : step.arguments) {
      const auto* value = std::get_if<Value>(&argument);
      if (value && value->kind == Value::Kind::kStep) pass = std::max(pass, passes_[value->index]);
    }
    passes_.push_back(pass + (is_over_rows(step) ? 1 : 0));
  }
  constexpr auto kUnknown = std::numeric_limits<std::size_t>::max();
  computed_in_.assign(steps.size(), kUnknown);
  for (std::size_t s = steps.size(); s-- > 0;) {
    if (computed_in_[s] == kUnknown) computed_in_[s] = passes_[s];
    const auto needs = is_over_rows(steps[s]) ? passes_[s] - 1 : computed_in_[s];
    for (const Argument& argument : steps[s].arguments) {
      const auto* value = std::get_if<Value>(&argument);
      if (!value || value->kind != Value::Kind::kStep) continue;
      computed_in_[value->index] = std::min(computed_in_[value->index], needs);
    }
  }
}

std::size_t RowPlan::last_pass() const { return *std::max_element(passes_.begin(), passes_.end()); }

at::Tensor RowPlan::aligned_input(std::size_t input, const at::Tensor& tensor) const {
  return input_lacks_row_[input] ? with_row_dimensions(tensor) : tensor;
}

at::Tensor RowPlan::aligned_result(std::size_t step, const at::Tensor& tensor) const {
  return forms_[step] == Form::kDropped ? with_row_dimensions(tensor) : tensor;
}

at::Tensor RowPlan::with_row_dimensions(const at::Tensor& tensor) const {
  at::Tensor aligned = tensor;
  for (std::size_t d = 0; d < along_; ++d) aligned = aligned.unsqueeze(-1);
  return aligned;
}

}  // namespace nimble::kernels
