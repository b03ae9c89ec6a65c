#include "nimble/kernels/foreach_pointwise.h"

#include <ATen/ATen.h>
#include <ATen/core/List.h>
#include <torch/library.h>

#include "nimble/core/error.h"

namespace nimble::kernels {
namespace {

using List = std::vector<at::Tensor>;

std::vector<List> cut(at::TensorList tensors, std::size_t count) {
  std::vector<List> lists;
  for (std::size_t begin = 0; begin < tensors.size(); begin += count) {
    lists.emplace_back(tensors.begin() + begin, tensors.begin() + begin + count);
  }
  return lists;
}

List run(const Step& step, const std::vector<List>& inputs, const std::vector<List>& made) {
  torch::jit::Stack stack;
  for (const Argument& argument : step.arguments) {
    if (const auto* value = std::get_if<Value>(&argument)) {
      stack.emplace_back((value->kind == Value::Kind::kInput ? inputs : made).at(value->index));
    } else {
      stack.push_back(std::get<c10::IValue>(argument));
    }
  }
  operator_of(step).callBoxed(&stack);
  return stack.at(0).toTensorVector();
}

TORCH_LIBRARY_IMPL(nimble, CompositeExplicitAutograd, library) {
  library.impl("foreach_pointwise", foreach_pointwise);
}

}  // namespace

Lists lists_of_call(const Expression& expression, at::TensorList written, at::TensorList read,
                    std::int64_t count) {
  const auto length = static_cast<std::size_t>(count);
  const std::size_t all = written.size() + read.size();
  const bool fits = count > 0 && all == expression.inputs * length && all > 0 &&
                    written.size() % length == 0 && expression.results.size() >= written.size() / length &&
                    !expression.results.empty();
  if (!fits)
    throw InvalidInput("[nimble::foreach_pointwise] " + std::to_string(written.size()) + " and " +
                       std::to_string(read.size()) + " tensors are not the lists of " +
                       std::to_string(count) + " that this needs: " + to_string(expression));
  return {.written = cut(written, length), .read = cut(read, length)};
}

std::vector<at::Tensor> foreach_pointwise(at::TensorList written, at::TensorList read, std::string_view text,
                                          std::int64_t count) {
  const Expression expression = parse_expression(text);
  const Lists lists = lists_of_call(expression, written, read, count);
  std::vector<List> inputs = lists.written, made;
  inputs.insert(inputs.end(), lists.read.begin(), lists.read.end());
  for (const Step& step : expression.steps) made.push_back(run(step, inputs, made));

  std::vector<List> results;
  for (const Value& value : expression.results) {
    List& list = results.emplace_back();
    for (const at::Tensor& tensor : (value.kind == Value::Kind::kInput ? inputs : made).at(value.index)) {
      list.push_back(value.kind == Value::Kind::kInput ? tensor.clone() : tensor);
    }
  }
  List returned;
  for (std::size_t r = 0; r < results.size(); ++r) {
    for (std::size_t i = 0; i < results[r].size(); ++i) {
      if (r < lists.written.size()) {
        lists.written[r][i].copy_(results[r][i]);
      } else {
        returned.push_back(results[r][i]);
      }
    }
  }
  return returned;
}

}  // namespace nimble::kernels
