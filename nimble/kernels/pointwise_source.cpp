#include "nimble/kernels/pointwise_source.h"

#include <ATen/ops/result_type.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "nimble/core/error.h"
#include "nimble/kernels/image_layout.h"

namespace nimble::kernels {
namespace {

// How a call of ATen's becomes a call of a device function. `arguments` are those that matter, in the order
// of the device function.
struct Emission {
  const char* function;
  std::vector<std::size_t> arguments;
  bool compares = false;  // computes in the common type of its operands, not in that of its result
};

const std::unordered_map<std::string_view, Emission>& emissions() {
  static const std::unordered_map<std::string_view, Emission> table = {
      {"relu", {"relu", {0}}},
      {"relu6", {"relu6", {0}}},
      {"neg", {"neg", {0}}},
      {"abs", {"abs", {0}}},
      {"exp", {"exp", {0}}},
      {"log", {"log", {0}}},
      {"sqrt", {"sqrt", {0}}},
      {"rsqrt", {"rsqrt", {0}}},
      {"reciprocal", {"reciprocal", {0}}},
      {"erf", {"erf", {0}}},
      {"sin", {"sin", {0}}},
      {"cos", {"cos", {0}}},
      {"floor", {"floor", {0}}},
      {"ceil", {"ceil", {0}}},
      {"tanh", {"tanh", {0}}},
      {"sigmoid", {"sigmoid", {0}}},
      {"silu", {"silu", {0}}},
      {"hardsigmoid", {"hardsigmoid", {0}}},
      {"hardswish", {"hardswish", {0}}},
      {"leaky_relu", {"leaky_relu", {0, 1}}},
      {"hardtanh", {"clamp", {0, 1, 2}}},
      {"clamp", {"clamp", {0, 1, 2}}},
      {"clamp_min", {"clamp_min", {0, 1}}},
      {"clamp_max", {"clamp_max", {0, 1}}},
      {"gelu", {"gelu", {0}}},
      {"add.Tensor", {"add", {0, 1, 2}}},
      {"add.Scalar", {"add", {0, 1, 2}}},
      {"sub.Tensor", {"sub", {0, 1, 2}}},
      {"sub.Scalar", {"sub", {0, 1, 2}}},
      {"rsub.Scalar", {"rsub", {0, 1, 2}}},
      {"mul.Tensor", {"mul", {0, 1}}},
      {"mul.Scalar", {"mul", {0, 1}}},
      {"div.Tensor", {"div", {0, 1}}},
      {"div.Scalar", {"div_by_number", {0, 1}}},
      {"maximum", {"larger", {0, 1}}},
      {"minimum", {"smaller", {0, 1}}},
      {"pow.Tensor_Scalar", {"pow", {0, 1}}},
      {"pow.Tensor_Tensor", {"pow", {0, 1}}},
      {"addcmul", {"addcmul", {0, 1, 2, 3}}},
      {"addcdiv", {"addcdiv", {0, 1, 2, 3}}},
      {"eq.Tensor", {"eq", {0, 1}, true}},
      {"eq.Scalar", {"eq", {0, 1}, true}},
      {"ne.Tensor", {"ne", {0, 1}, true}},
      {"ne.Scalar", {"ne", {0, 1}, true}},
      {"lt.Tensor", {"lt", {0, 1}, true}},
      {"lt.Scalar", {"lt", {0, 1}, true}},
      {"le.Tensor", {"le", {0, 1}, true}},
      {"le.Scalar", {"le", {0, 1}, true}},
      {"gt.Tensor", {"gt", {0, 1}, true}},
      {"gt.Scalar", {"gt", {0, 1}, true}},
      {"ge.Tensor", {"ge", {0, 1}, true}},
      {"ge.Scalar", {"ge", {0, 1}, true}},
      {"where.self", {"where", {0, 1, 2}}},
      {"masked_fill.Scalar", {"masked_fill", {0, 1, 2}}},
      {"threshold_backward", {"threshold_backward", {0, 1, 2}}},
      {"sigmoid_backward", {"sigmoid_backward", {0, 1}}},
      {"tanh_backward", {"tanh_backward", {0, 1}}},
  };
  return table;
}

bool is_number(const Argument& argument) {
  const auto* constant = std::get_if<c10::IValue>(&argument);
  return constant && (constant->isInt() || constant->isDouble() || constant->isBool());
}

// The emission of one call, which may depend on its constants.
Emission emission_of(const Step& step) {
  Emission emission = emissions().at(step.function);
  if (step.function == "gelu" && std::get<c10::IValue>(step.arguments.at(1)).toStringRef() == "tanh") {
    emission.function = "gelu_tanh";
  }
  if (step.function == "clamp" || step.function == "hardtanh") {  // either limit may be none
    if (!is_number(step.arguments.at(1))) return {"clamp_max", {0, 2}};
    if (!is_number(step.arguments.at(2))) return {"clamp_min", {0, 1}};
  }
  if (step.function == "pow.Tensor_Scalar") {  // ATen has kernels of their own for these
    const double exponent = std::get<c10::IValue>(step.arguments.at(1)).toScalar().toDouble();
    if (exponent == 2) return {"square", {0}};
    if (exponent == 3) return {"cube", {0}};
    if (exponent == 0.5) return {"sqrt", {0}};
    if (exponent == -0.5) return {"rsqrt", {0}};
    if (exponent == -1) return {"reciprocal", {0}};
  }
  return emission;
}

// A number exactly, as the type that arithmetic is done in.
std::string literal(const c10::IValue& constant, std::string_view arithmetic) {
  std::string text;
  if (constant.isInt() || constant.isBool()) {
    text = std::to_string(constant.toScalar().toLong()) + "LL";
  } else {
    const double number = constant.toDouble();
    if (std::isnan(number)) {
      text = "__longlong_as_double(0x7ff8000000000000LL)";
    } else if (std::isinf(number)) {
      text = std::string(number < 0 ? "-" : "") + "__longlong_as_double(0x7ff0000000000000LL)";
    } else {
      char digits[64];
      std::snprintf(digits, sizeof digits, "%a", number);
      text = digits;
    }
  }
  return "static_cast<" + std::string(arithmetic) + ">(" + text + ")";
}

// One dimension of the iteration: how far it goes and, by operand, how far apart its elements are.
struct Dimension {
  std::int64_t size;
  std::vector<std::int64_t> strides;
};

// The dimensions of `shape` as the operands see them, from the slowest to the fastest in memory, with those
// that all operands step through evenly made one.
std::vector<Dimension> dimensions_of(at::IntArrayRef shape, at::TensorList operands) {
  std::vector<Dimension> all;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    Dimension dimension{shape[d], {}};
    for (const at::Tensor& operand : operands) {
      const auto behind = static_cast<std::int64_t>(shape.size() - d);
      const bool broadcast = operand.dim() < behind || operand.size(operand.dim() - behind) == 1;
      dimension.strides.push_back(broadcast ? 0 : operand.stride(operand.dim() - behind));
    }
    all.push_back(std::move(dimension));
  }
  // The last operand is a result; its order in memory is what counts.
  std::stable_sort(all.begin(), all.end(), [](const Dimension& a, const Dimension& b) {
    return a.strides.back() > b.strides.back();
  });
  std::vector<Dimension> merged;
  for (Dimension& dimension : all) {
    const auto continues = [&](const Dimension& slower) {
      for (std::size_t i = 0; i < slower.strides.size(); ++i) {
        if (slower.strides[i] != dimension.strides[i] * dimension.size) return false;
      }
      return true;
    };
    if (!merged.empty() && continues(merged.back())) {
      merged.back() = {merged.back().size * dimension.size, std::move(dimension.strides)};
    } else {
      merged.push_back(std::move(dimension));
    }
  }
  if (merged.empty()) merged.push_back({1, std::vector<std::int64_t>(operands.size(), 0)});
  return merged;
}

// How many neighbours one thread handles.
std::int64_t vector_width(const std::vector<Dimension>& dimensions, at::TensorList operands,
                          std::int64_t elements) {
  constexpr std::int64_t kWidestLoad = 16;  // bytes
  std::int64_t widest = kWidestLoad;
  for (const at::Tensor& operand : operands) {
    widest = std::min(widest, kWidestLoad / static_cast<std::int64_t>(operand.element_size()));
  }
  CommonVector vector(spread_vector(elements, widest));
  vector.divides(dimensions.back().size);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto stride = dimensions.back().strides[i];
    if (stride == 0) continue;
    if (stride != 1) return 1;
    for (std::size_t d = 0; d + 1 < dimensions.size(); ++d) vector.divides(dimensions[d].strides[i]);
    vector.divides(address_in_elements(operands[i]));
  }
  return vector.width();
}

std::string offset_of(const std::vector<Dimension>& dimensions, std::size_t operand) {
  std::string text;
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    const auto stride = dimensions[d].strides[operand];
    if (stride != 0) text += " + i" + std::to_string(d) + " * " + std::to_string(stride);
  }
  return text;
}

}  // namespace

bool has_kernel(const Step& step) {
  if (!emissions().contains(step.function)) return false;
  const auto used = emission_of(step).arguments;
  return std::all_of(used.begin(), used.end(), [&](std::size_t i) {
    return std::holds_alternative<Value>(step.arguments.at(i)) || is_number(step.arguments[i]);
  });
}

KernelSource pointwise_source(const Expression& expression, at::TensorList inputs, at::TensorList steps,
                              at::TensorList results) {
  std::vector<at::Tensor> operands(inputs.begin(), inputs.end());
  operands.insert(operands.end(), results.begin(), results.end());
  for (const at::Tensor& operand : operands) {
    if (device_type(operand.scalar_type()).empty())
      throw InvalidInput(std::string("[nimble::pointwise] no kernel handles elements of type ") +
                         c10::toString(operand.scalar_type()));
  }
  for (const at::Tensor& result : results) {
    if (result.sizes() != results[0].sizes())
      throw InvalidInput("[nimble::pointwise] all results must have one shape: " + to_string(expression));
  }
  const std::int64_t elements = results[0].numel();
  const auto dimensions = dimensions_of(results[0].sizes(), operands);
  const std::int64_t width = vector_width(dimensions, operands, elements);
  const std::int64_t work = elements / width;
  const std::string lanes = std::to_string(width), threads = std::to_string(block_size(work));

  // The type of a value in memory, and the name of the variable that holds it inside the loop.
  const auto dtype = [&](const Value& value) {
    return (value.kind == Value::Kind::kInput ? inputs : steps)[value.index].scalar_type();
  };
  const auto name = [](const Value& value) {
    return (value.kind == Value::Kind::kInput ? "a" : "t") + std::to_string(value.index);
  };

  std::string parameters, body;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool is_input = i < inputs.size();
    parameters += (i ? ", " : "") + std::string(is_input ? "const " : "") +
                  std::string(device_type(operands[i].scalar_type())) + "* __restrict__ p" +
                  std::to_string(i);
  }
  const std::string index = elements < (std::int64_t{1} << 31) ? "int" : "long long";
  body += "  " + index + " rest = static_cast<" + index + ">(blockIdx.x) * " + threads +
          " + threadIdx.x;\n  if (rest >= " + std::to_string(work) + "LL) return;\n";
  for (std::size_t d = dimensions.size(); d-- > 0;) {
    const bool fastest = d + 1 == dimensions.size();
    const std::string size = std::to_string(fastest ? dimensions[d].size / width : dimensions[d].size);
    const std::string i = "i" + std::to_string(d);
    body += "  const " + index + " " + i + " = " + (d == 0 ? "rest" : "rest % " + size) +
            (fastest ? " * " + lanes : "") + ";\n";
    if (d != 0) body += "  rest /= " + size + ";\n";
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool broadcast = dimensions.back().strides[i] == 0;
    body += "  const auto v" + std::to_string(i) + " = load<" + (broadcast ? "1" : lanes) + ">(p" +
            std::to_string(i) + offset_of(dimensions, i) + ");\n";
  }
  for (std::size_t r = 0; r < results.size(); ++r) {
    body += "  Vector<" + std::string(device_type(results[r].scalar_type())) + ", " + lanes + "> r" +
            std::to_string(r) + ";\n";
  }
  body += "#pragma unroll\n  for (int lane = 0; lane < " + lanes + "; ++lane) {\n";
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool broadcast = dimensions.back().strides[i] == 0;
    body += "    const auto a" + std::to_string(i) + " = widen(v" + std::to_string(i) + ".at[" +
            (broadcast ? "0" : "lane") + "]);\n";
  }
  for (std::size_t s = 0; s < expression.steps.size(); ++s) {
    const Step& step = expression.steps[s];
    const Emission emission = emission_of(step);
    const auto result_type = steps[s].scalar_type();
    auto compute = result_type;
    if (emission.compares) {
      // Of the operands, numbers included, as ATen compares them.
      const auto meta = [&](const Argument& argument) {
        const auto& value = std::get<Value>(argument);
        return (value.kind == Value::Kind::kInput ? inputs : steps)[value.index];
      };
      compute =
          is_number(step.arguments[1])
              ? at::result_type(meta(step.arguments[0]), std::get<c10::IValue>(step.arguments[1]).toScalar())
              : at::result_type(meta(step.arguments[0]), meta(step.arguments[1]));
    }
    const std::string type(device_type(compute));
    std::string call;
    for (std::size_t argument : emission.arguments) {
      if (!call.empty()) call += ", ";
      if (const auto* value = std::get_if<Value>(&step.arguments[argument])) {
        const bool is_condition = dtype(*value) == c10::kBool && compute != c10::kBool &&
                                  (step.function == "where.self" || step.function == "masked_fill.Scalar");
        const bool same = dtype(*value) == compute || is_condition;
        call += same ? name(*value) : "as<" + type + ">(" + name(*value) + ")";
      } else {
        call += literal(std::get<c10::IValue>(step.arguments[argument]), "arithmetic_t<" + type + ">");
      }
    }
    body += "    const auto t" + std::to_string(s) + " = as<" + std::string(device_type(result_type)) +
            ">(fn::" + emission.function + "<arithmetic_t<" + type + ">>(" + call + "));\n";
  }
  for (std::size_t r = 0; r < results.size(); ++r) {
    body += "    r" + std::to_string(r) + ".at[lane] = Narrow<" +
            std::string(device_type(results[r].scalar_type())) + ">::of(" + name(expression.results[r]) +
            ");\n";
  }
  body += "  }\n";
  for (std::size_t r = 0; r < results.size(); ++r) {
    body += "  store(p" + std::to_string(inputs.size() + r) + offset_of(dimensions, inputs.size() + r) +
            ", r" + std::to_string(r) + ");\n";
  }
  const std::string kernel = "extern \"C\" __global__ void __launch_bounds__(" + threads + ") " +
                             KernelSource::kName + "(" + parameters + ") {\n" + body + "}\n";
  return {with_prelude("", kernel), block_count(work), block_size(work), false};
}

}  // namespace nimble::kernels
