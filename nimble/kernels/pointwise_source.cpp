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
  enum class In {
    kArithmetic,  // that of its result, widened: rounded once, at the end
    kMemory,      // that of its result as it lies in memory: every operation rounds, numbers are rounded too
    kOperands,    // the common type of what it compares, to which numbers are rounded
  } in = In::kArithmetic;  // the type that it is computed in
};

const std::unordered_map<std::string_view, Emission>& emissions() {
  using enum Emission::In;
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
      {"pow.Tensor_Scalar", {"pow", {0, 1}, kMemory}},
      {"pow.Tensor_Tensor", {"pow", {0, 1}, kMemory}},
      {"addcmul", {"addcmul", {0, 1, 2, 3}}},
      {"addcdiv", {"addcdiv", {0, 1, 2, 3}}},
      {"eq.Tensor", {"eq", {0, 1}, kOperands}},
      {"eq.Scalar", {"eq", {0, 1}, kOperands}},
      {"ne.Tensor", {"ne", {0, 1}, kOperands}},
      {"ne.Scalar", {"ne", {0, 1}, kOperands}},
      {"lt.Tensor", {"lt", {0, 1}, kOperands}},
      {"lt.Scalar", {"lt", {0, 1}, kOperands}},
      {"le.Tensor", {"le", {0, 1}, kOperands}},
      {"le.Scalar", {"le", {0, 1}, kOperands}},
      {"gt.Tensor", {"gt", {0, 1}, kOperands}},
      {"gt.Scalar", {"gt", {0, 1}, kOperands}},
      {"ge.Tensor", {"ge", {0, 1}, kOperands}},
      {"ge.Scalar", {"ge", {0, 1}, kOperands}},
      {"where.self", {"where", {0, 1, 2}}},
      {"masked_fill.Scalar", {"masked_fill", {0, 1, 2}}},
      {"threshold_backward", {"threshold_backward", {0, 1, 2}, kMemory}},
      {"sigmoid_backward", {"sigmoid_backward", {0, 1}, kMemory}},
      {"tanh_backward", {"tanh_backward", {0, 1}, kMemory}},
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
    if (exponent == 3) return {"cube", {0}, Emission::In::kMemory};
    if (exponent == -2) return {"inverse_square", {0}, Emission::In::kMemory};
    if (exponent == 1) return {"identity", {0}};
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

// The text of one kernel. Inside it, `i0`, `i1`, … count along the dimensions, `p` are the arguments, `v`
// what was loaded, `a` the inputs' and `t` the steps' values of one lane, `r` what is to be stored.
class Emitter {
 public:
  Emitter(const Expression& expression, at::TensorList inputs, at::TensorList steps, at::TensorList results)
      : expression_(expression), inputs_(inputs), steps_(steps), results_(results) {
    operands_.assign(inputs.begin(), inputs.end());
    operands_.insert(operands_.end(), results.begin(), results.end());
    dimensions_ = dimensions_of(results[0].sizes(), operands_);
    width_ = vector_width(dimensions_, operands_, results[0].numel());
    work_ = results[0].numel() / width_;
  }

  KernelSource emit() const {
    const std::string head = "extern \"C\" __global__ void __launch_bounds__(" + number(block_size(work_)) +
                             ") " + KernelSource::kName + "(" + parameters() + ") {\n";
    const std::string kernel = head + waiting() + indices() + loads() +
                               "#pragma unroll\n  for (int lane = 0; lane < " + number(width_) +
                               "; ++lane) {\n" + arithmetic() + "  }\n" + stores() + "}\n";
    return {with_prelude("", kernel), block_count(work_), block_size(work_), false};
  }

 private:
  static std::string number(std::int64_t value) { return std::to_string(value); }
  static std::string type(const at::Tensor& tensor) { return std::string(device_type(tensor.scalar_type())); }
  static std::string name(const Value& value) {
    return (value.kind == Value::Kind::kInput ? "a" : "t") + std::to_string(value.index);
  }
  const at::Tensor& tensor(const Value& value) const {
    return (value.kind == Value::Kind::kInput ? inputs_ : steps_)[value.index];
  }
  bool is_broadcast(std::size_t operand) const { return dimensions_.back().strides[operand] == 0; }

  std::string parameters() const {
    std::string text;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const char* access = i < inputs_.size() ? "const " : "";
      text += (i ? ", " : "") + (access + type(operands_[i])) + "* p" + std::to_string(i);
    }
    return text;
  }

  std::string waiting() const {
    std::string text;
    for (std::size_t i = 0; i < operands_.size(); ++i) text += (i ? ", p" : "p") + std::to_string(i);
    return "  after_earlier_kernels(" + text + ");\n";
  }

  std::string indices() const {
    const std::string index = reach() < (std::int64_t{1} << 31) ? "int" : "long long";
    std::string text = "  " + index + " rest = static_cast<" + index + ">(blockIdx.x) * " +
                       number(block_size(work_)) + " + threadIdx.x;\n  if (rest >= " + number(work_) +
                       "LL) return;\n";
    for (std::size_t d = dimensions_.size(); d-- > 0;) {
      const bool fastest = d + 1 == dimensions_.size();
      const std::string size = number(fastest ? dimensions_[d].size / width_ : dimensions_[d].size);
      text += "  const " + index + " i" + std::to_string(d) + " = " + (d == 0 ? "rest" : "rest % " + size) +
              (fastest ? " * " + number(width_) : "") + ";\n";
      if (d != 0) text += "  rest /= " + size + ";\n";
    }
    return text;
  }

  // How far from its first element any operand is looked at; a slice reaches further than its elements count.
  std::int64_t reach() const {
    std::int64_t furthest = results_[0].numel();
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      std::int64_t last = 0;
      for (const Dimension& dimension : dimensions_) last += dimension.size * dimension.strides[i];
      furthest = std::max(furthest, last);
    }
    return furthest;
  }

  std::string place(std::size_t operand) const {
    std::string text = "p" + std::to_string(operand);
    for (std::size_t d = 0; d < dimensions_.size(); ++d) {
      const auto stride = dimensions_[d].strides[operand];
      if (stride != 0) text += " + i" + std::to_string(d) + " * " + number(stride);
    }
    return text;
  }

  std::string loads() const {
    std::string text;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      text += "  const auto v" + std::to_string(i) + " = load<" + (is_broadcast(i) ? "1" : number(width_)) +
              ">(" + place(i) + ");\n";
    }
    for (std::size_t r = 0; r < results_.size(); ++r) {
      text += "  Vector<" + type(results_[r]) + ", " + number(width_) + "> r" + std::to_string(r) + ";\n";
    }
    return text;
  }

  std::string arithmetic() const {
    std::string text;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const std::string n = std::to_string(i);
      text += "    const auto a" + n + " = widen(v" + n + ".at[" + (is_broadcast(i) ? "0" : "lane") + "]);\n";
    }
    for (std::size_t s = 0; s < expression_.steps.size(); ++s) text += step_line(s);
    for (std::size_t r = 0; r < results_.size(); ++r) {
      text += "    r" + std::to_string(r) + ".at[lane] = Narrow<" + type(results_[r]) + ">::of(" +
              name(expression_.results[r]) + ");\n";
    }
    return text;
  }

  // Operands are brought to the type that ATen computes in, and the result is rounded as if it went to
  // memory.
  std::string step_line(std::size_t s) const {
    const Step& step = expression_.steps[s];
    const Emission emission = emission_of(step);
    const bool compares = emission.in == Emission::In::kOperands;
    const auto compute = compares ? common_type(step) : steps_[s].scalar_type();
    const std::string computed(device_type(compute)), wide = "arithmetic_t<" + computed + ">";
    const bool selects = step.function == "where.self" || step.function == "masked_fill.Scalar";
    std::string arguments;
    for (const std::size_t argument : emission.arguments) {
      if (!arguments.empty()) arguments += ", ";
      if (const auto* value = std::get_if<Value>(&step.arguments[argument])) {
        const auto given = tensor(*value).scalar_type();
        const bool as_is = given == compute || (selects && given == c10::kBool);
        arguments += as_is ? name(*value) : "as<" + computed + ">(" + name(*value) + ")";
      } else {
        const std::string text = literal(std::get<c10::IValue>(step.arguments[argument]), wide);
        arguments += emission.in == Emission::In::kArithmetic ? text : "as<" + computed + ">(" + text + ")";
      }
    }
    return "    const auto t" + std::to_string(s) + " = as<" + type(steps_[s]) +
           ">(fn::" + emission.function + "<" + (emission.in == Emission::In::kMemory ? computed : wide) +
           ">(" + arguments + "));\n";
  }

  // Of two operands that are compared, the second perhaps a number.
  c10::ScalarType common_type(const Step& step) const {
    const at::Tensor& left = tensor(std::get<Value>(step.arguments[0]));
    if (is_number(step.arguments[1])) {
      return at::result_type(left, std::get<c10::IValue>(step.arguments[1]).toScalar());
    }
    return at::result_type(left, tensor(std::get<Value>(step.arguments[1])));
  }

  std::string stores() const {
    std::string text;
    for (std::size_t r = 0; r < results_.size(); ++r) {
      text += "  store(" + place(inputs_.size() + r) + ", r" + std::to_string(r) + ");\n";
    }
    return text;
  }

  const Expression& expression_;
  at::TensorList inputs_, steps_, results_;
  std::vector<at::Tensor> operands_;
  std::vector<Dimension> dimensions_;
  std::int64_t width_ = 1, work_ = 0;  // elements of one thread, and how many threads that takes
};

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
  for (const at::TensorList tensors : {inputs, steps, results}) {
    for (const at::Tensor& tensor : tensors) {
      if (device_type(tensor.scalar_type()).empty())
        throw InvalidInput(std::string("[nimble::pointwise] no kernel handles elements of type ") +
                           c10::toString(tensor.scalar_type()));
    }
  }
  for (const at::Tensor& result : results) {
    if (result.sizes() != results[0].sizes())
      throw InvalidInput("[nimble::pointwise] all results must have one shape: " + to_string(expression));
  }
  return Emitter(expression, inputs, steps, results).emit();
}

}  // namespace nimble::kernels
