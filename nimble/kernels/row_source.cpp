#include "nimble/kernels/row_source.h"

#include <algorithm>
#include <optional>
#include <set>

#include "nimble/core/error.h"
#include "nimble/kernels/device_sources.h"
#include "nimble/kernels/element_source.h"
#include "nimble/kernels/image_layout.h"
#include "nimble/kernels/iteration.h"

namespace nimble::kernels {
namespace {

constexpr std::int64_t kLongestRow = 8192, kWarp = 32;

bool is_float_of_ours(c10::ScalarType type) {
  return type == c10::kFloat || type == c10::kHalf || type == c10::kBFloat16;
}

const Value& value_of(const Argument& argument) { return std::get<Value>(argument); }
const c10::IValue& constant_of(const Argument& argument) { return std::get<c10::IValue>(argument); }

// The one step that is over rows.
std::optional<std::size_t> row_step(const Expression& expression) {
  std::optional<std::size_t> found;
  for (std::size_t s = 0; s < expression.steps.size(); ++s) {
    if (!is_over_rows(expression.steps[s])) continue;
    if (found) return {};
    found = s;
  }
  return found;
}

// How many of the last dimensions of `x` make a row; none where the step is over something else.
std::size_t row_dimensions(const Step& step, const at::Tensor& x) {
  if (step.function == "native_layer_norm") return constant_of(step.arguments[1]).toIntList().size();
  const auto dimension = constant_of(step.arguments[1]).toInt();
  return dimension == -1 || dimension == x.dim() - 1 ? 1 : 0;
}

std::vector<at::Tensor> joined(at::TensorList inputs, at::TensorList results) {
  std::vector<at::Tensor> all(inputs.begin(), inputs.end());
  all.insert(all.end(), results.begin(), results.end());
  return all;
}

// How threads share the work.
struct Division {
  std::int64_t row_threads, block_rows, items, width;

  Division(const Iteration& iteration, std::int64_t rows, std::int64_t columns, std::int64_t inputs,
           std::int64_t candidate) {
    constexpr std::int64_t kMostThreads = 512, kMostElements = 16, kMostLoaded = 96, kManyRows = 132 * 4;
    width = iteration.vector(kMostElements);
    while (width > 1 && columns / width < kWarp) width /= 2;
    // Few rows are spread over many threads; of many, each thread holds as much as its registers allow.
    const bool spreads = (rows < kManyRows) == (candidate == 0);
    std::int64_t elements = spreads ? width : kMostElements;
    while (elements > width && elements * inputs > kMostLoaded) elements /= 2;
    const auto warps = (columns + elements * kWarp - 1) / (elements * kWarp);
    row_threads = std::min(warps * kWarp, kMostThreads);
    items = (columns / width + row_threads - 1) / row_threads;
    block_rows = row_threads == kWarp && rows >= kManyRows ? 4 : 1;
  }
};

// The text of one kernel. Inside it, `v` is what was loaded, `row` what the step over rows looks at, `k` what
// steps before it made and is needed again behind it, `r` what is to be stored.
class Emitter {
 public:
  Emitter(const Expression& expression, at::TensorList inputs, at::TensorList steps, at::TensorList results,
          std::int64_t candidate)
      : expression_(expression),
        inputs_(inputs),
        results_(results),
        over_rows_(*row_step(expression)),
        element_(expression, inputs, steps),
        x_(element_.tensor(x())),
        row_dimensions_(row_dimensions(expression.steps[over_rows_], x_)),
        columns_(c10::multiply_integers(x_.sizes().slice(x_.dim() - row_dimensions_))),
        rows_(x_.numel() / columns_),
        iteration_(dimensions(joined(inputs, results)), joined(inputs, results)),
        division_(iteration_, rows_, columns_, static_cast<std::int64_t>(inputs.size()), candidate),
        before_(steps_before()) {}

  // Whether the elements of each row are neighbours, or one number for all of them.
  bool lies_in_rows() const {
    const auto row = dimensions_of(row_shape(), joined(inputs_, results_));
    if (row.size() != 1) return false;
    for (std::size_t i = 0; i < row[0].strides.size(); ++i) {
      const bool may_be_broadcast = i < inputs_.size() || columns_ == 1;
      if (row[0].strides[i] != 1 && !(may_be_broadcast && row[0].strides[i] == 0)) return false;
    }
    return true;
  }

  KernelSource emit() const {
    const auto threads = division_.row_threads * division_.block_rows;
    const std::string constants = index_type({columns_}) + constant("columns", columns_) +
                                  constant("row_threads", division_.row_threads) +
                                  constant("items", division_.items) + constant("width", division_.width);
    const std::string kernel = std::string(device::rows) + "extern \"C\" __global__ void __launch_bounds__(" +
                               number(threads) + ") " + KernelSource::kName + "(" +
                               iteration_.parameters(inputs_.size()) + ") {\n" + iteration_.waiting() +
                               indices() + loads() + before() + reduction() + behind() + "}\n";
    return {with_prelude(constants, kernel),
            static_cast<unsigned>((rows_ + division_.block_rows - 1) / division_.block_rows),
            static_cast<unsigned>(threads), false};
  }

 private:
  static std::string number(std::int64_t value) { return std::to_string(value); }
  static std::string number(std::size_t value) { return std::to_string(value); }

  const Step& step_over_rows() const { return expression_.steps[over_rows_]; }
  const Value& x() const { return value_of(step_over_rows().arguments[0]); }
  at::IntArrayRef row_shape() const { return x_.sizes().slice(x_.dim() - row_dimensions_); }

  // Those that count rows, and the one along them.
  std::vector<Dimension> dimensions(const std::vector<at::Tensor>& operands) const {
    auto all = dimensions_of(x_.sizes().slice(0, x_.dim() - row_dimensions_), operands, row_dimensions_);
    all.push_back(dimensions_of(row_shape(), operands).back());
    return all;
  }

  // By step: whether the one over rows needs what it makes.
  std::vector<bool> steps_before() const {
    std::vector<bool> before(expression_.steps.size(), false);
    if (x().kind == Value::Kind::kStep) before[x().index] = true;
    for (std::size_t s = over_rows_; s-- > 0;) {
      if (!before[s]) continue;
      for (const Argument& argument : expression_.steps[s].arguments) {
        const auto* value = std::get_if<Value>(&argument);
        if (value && value->kind == Value::Kind::kStep) before[value->index] = true;
      }
    }
    return before;
  }

  // What is needed behind the step over rows: by steps there, by that step itself, as a result made there.
  bool is_needed_behind(const Value& wanted) const {
    const auto is_wanted = [&](const Argument& argument) {
      const auto* value = std::get_if<Value>(&argument);
      return value && *value == wanted;
    };
    for (std::size_t s = 0; s < expression_.steps.size(); ++s) {
      if (before_[s]) continue;
      const auto& arguments = expression_.steps[s].arguments;
      const auto first = arguments.begin() + (s == over_rows_ ? 1 : 0);  // its row is at hand
      if (std::any_of(first, arguments.end(), is_wanted)) return true;
    }
    return false;
  }

  bool is_needed_before(const Value& wanted) const {
    if (x() == wanted) return true;
    for (std::size_t s = 0; s < over_rows_; ++s) {
      if (!before_[s]) continue;
      for (const Argument& argument : expression_.steps[s].arguments) {
        const auto* value = std::get_if<Value>(&argument);
        if (value && *value == wanted) return true;
      }
    }
    return false;
  }

  std::string indices() const {
    const std::string index(iteration_.index_type());
    std::string text = "  " + index + " rest = static_cast<" + index + ">(blockIdx.x) * " +
                       number(division_.block_rows) + " + threadIdx.x / row_threads;\n";
    if (rows_ % division_.block_rows != 0) text += "  if (rest >= " + number(rows_) + "LL) return;\n";
    return text + iteration_.indices(iteration_.dimensions() - 1, 1);
  }

  // A loop over what this thread holds of its row.
  std::string for_items(const std::string& body) const {
    return "#pragma unroll\n  for (int item = 0; item < items; ++item) {\n    if (!is_inside(item)) "
           "continue;\n"
           "    const int i" +
           number(iteration_.dimensions() - 1) + " = first_column(item);\n" + body + "  }\n";
  }
  static std::string for_lanes(const std::string& body) {
    return "#pragma unroll\n    for (int lane = 0; lane < width; ++lane) {\n" + body + "    }\n";
  }

  // All at once, before the first store: the compiler must take each store for one to anything that is loaded
  // later.
  std::string loads() const {
    std::string once, each;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const std::string v = "v" + number(i);
      if (iteration_.is_broadcast(i)) {
        once += "  const auto " + v + " = load<1>(" + iteration_.place(i) + ");\n";
      } else {
        once += "  Vector<" + ElementSource::type(inputs_[i]) + ", width> " + v + "[items];\n";
        each += "    " + v + "[item] = load<width>(" + iteration_.place(i) + ");\n";
      }
    }
    return once + for_items(each);
  }

  std::string input_line(std::size_t i) const {
    const std::string n = number(i);
    return "      const auto a" + n + " = widen(v" + n +
           (iteration_.is_broadcast(i) ? ".at[0]" : "[item].at[lane]") + ");\n";
  }

  std::string before() const {
    std::string kept = "  float row[items][width];\n", body;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (is_needed_before(input(i))) body += input_line(i);
    }
    for (std::size_t s = 0; s < over_rows_; ++s) {
      if (!before_[s]) continue;
      body += "      " + element_.step(s);
      if (!is_needed_behind(step(s))) continue;
      const std::string n = number(s);
      kept +=
          "  arithmetic_t<" + ElementSource::type(element_.tensor(step(s))) + "> k" + n + "[items][width];\n";
      body += "      k" + n + "[item][lane] = t" + n + ";\n";
    }
    body += "      row[item][lane] = " + ElementSource::name(x()) + ";\n";
    return kept + for_items(with_stores(body, true));
  }

  // The lines for one element, and where results of them go that are made before the step over rows, or not.
  std::string with_stores(std::string body, bool is_before) const {
    std::string vectors, stores;
    for (std::size_t r = 0; r < results_.size(); ++r) {
      if (before_[expression_.results[r].index] != is_before) continue;
      const std::string n = number(r), type = ElementSource::type(results_[r]);
      vectors += "    Vector<" + type + ", width> r" + n + ";\n";
      body += "      r" + n + ".at[lane] = Narrow<" + type + ">::of(" +
              ElementSource::name(expression_.results[r]) + ");\n";
      stores += "    store(" + iteration_.place(inputs_.size() + r) + ", r" + n + ");\n";
    }
    return vectors + for_lanes(body) + stores;
  }

  std::string reduction() const {
    const std::string& function = step_over_rows().function;
    if (function == "native_layer_norm") {
      return "  const LayerNorm over(row, " + literal(constant_of(step_over_rows().arguments[4]), "float") +
             ");\n";
    }
    return std::string("  const ") + (function == "_softmax" ? "Softmax" : "SafeSoftmax") + " over(row);\n";
  }

  // What the step over rows gives for one element, rounded as if it went to memory.
  std::string line_over_rows() const {
    const Step& step = step_over_rows();
    std::string value = "over(row[item][lane])";
    if (step.function == "native_layer_norm") {
      const auto* weight = std::get_if<Value>(&step.arguments[2]);
      const auto* bias = std::get_if<Value>(&step.arguments[3]);
      if (weight && bias) {
        value = "fn::multiply_add(" + value + ", " + ElementSource::name(*weight) + ", " +
                ElementSource::name(*bias) + ")";
      } else if (weight) {
        value += " * " + ElementSource::name(*weight);
      } else if (bias) {
        value += " + " + ElementSource::name(*bias);
      }
    }
    return "      const auto t" + number(over_rows_) + " = as<" +
           ElementSource::type(element_.tensor(kernels::step(over_rows_))) + ">(" + value + ");\n";
  }

  std::string behind() const {
    std::string body;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (is_needed_behind(input(i))) body += input_line(i);
    }
    for (std::size_t s = 0; s < expression_.steps.size(); ++s) {
      const std::string n = number(s);
      if (s == over_rows_) {
        body += line_over_rows();
      } else if (!before_[s]) {
        body += "      " + element_.step(s);
      } else if (is_needed_behind(step(s))) {
        body += "      const auto t" + n + " = k" + n + "[item][lane];\n";
      }
    }
    return for_items(with_stores(body, false));
  }

  const Expression& expression_;
  at::TensorList inputs_, results_;
  std::size_t over_rows_;
  ElementSource element_;
  const at::Tensor& x_;
  std::size_t row_dimensions_;
  std::int64_t columns_, rows_;
  Iteration iteration_;
  Division division_;
  std::vector<bool> before_;
};

// Whether this step is one that Emitter has words for, of rows that registers can hold.
bool has_row_kernel(const Step& step, at::TensorList inputs, const at::Tensor& x) {
  const auto k = row_dimensions(step, x);
  if (!is_float_of_ours(x.scalar_type()) || x.numel() == 0 || k == 0 ||
      static_cast<std::int64_t>(k) > x.dim())
    return false;
  const auto row = x.sizes().slice(x.dim() - k);
  if (c10::multiply_integers(row) > kLongestRow) return false;
  if (step.function == "_safe_softmax") return constant_of(step.arguments[2]).isNone();
  if (step.function == "_softmax") return true;
  for (const std::size_t argument : {2, 3}) {
    const auto* value = std::get_if<Value>(&step.arguments[argument]);
    if (!value) continue;
    if (value->kind != Value::Kind::kInput) return false;
    const at::Tensor& affine = inputs[value->index];
    if (affine.sizes() != row || !is_float_of_ours(affine.scalar_type())) return false;
  }
  return true;
}

}  // namespace

bool has_row_kernel(const Expression& expression, at::TensorList inputs, at::TensorList steps) {
  const auto over_rows = row_step(expression);
  if (!over_rows || inputs.empty()) return false;
  const ElementSource element(expression, inputs, steps);
  const at::Tensor& x = element.tensor(value_of(expression.steps[*over_rows].arguments[0]));
  if (!has_row_kernel(expression.steps[*over_rows], inputs, x)) return false;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (s != *over_rows && !has_kernel(expression.steps[s])) return false;
    if (steps[s].sizes() != x.sizes() || device_type(steps[s].scalar_type()).empty()) return false;
  }
  for (const at::Tensor& tensor : inputs) {
    if (device_type(tensor.scalar_type()).empty()) return false;
  }
  std::vector<at::Tensor> results;
  for (const Value& value : expression.results) {
    if (value.kind == Value::Kind::kInput) return false;
    results.push_back(steps[value.index]);
  }
  return Emitter(expression, inputs, steps, results, 0).lies_in_rows();
}

KernelSource row_source(const Expression& expression, at::TensorList inputs, at::TensorList steps,
                        at::TensorList results, std::int64_t candidate) {
  if (!has_row_kernel(expression, inputs, steps))
    throw InvalidInput("[nimble::rows] no kernel computes this over rows: " + to_string(expression));
  return Emitter(expression, inputs, steps, results, candidate).emit();
}

}  // namespace nimble::kernels
