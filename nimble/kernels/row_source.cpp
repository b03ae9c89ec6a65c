#include "nimble/kernels/row_source.h"

#include <algorithm>
#include <optional>

#include "nimble/core/error.h"
#include "nimble/kernels/device_sources.h"
#include "nimble/kernels/element_source.h"
#include "nimble/kernels/image_layout.h"
#include "nimble/kernels/iteration.h"
#include "nimble/kernels/row_division.h"
#include "nimble/kernels/row_plan.h"
#include "nimble/kernels/row_steps.h"

namespace nimble::kernels {
namespace {

constexpr std::int64_t kLongestRow = 8192;  // as many elements as registers can hold

bool is_float_of_ours(c10::ScalarType type) {
  return type == c10::kFloat || type == c10::kHalf || type == c10::kBFloat16;
}

const Value& x_of(const Step& step) { return std::get<Value>(step.arguments[0]); }

// The text of one kernel. Inside it, `v` is what was loaded, `a` a value of an input, `t` one that a step
// made, `row` what a step over rows looks at, `over` what it finds there, `k` what one pass over the elements
// computes and a later one needs again, `r` what is to be stored.
class Emitter {
 public:
  Emitter(const Expression& expression, at::TensorList inputs, at::TensorList steps, at::TensorList results,
          const RowPlan& plan, std::int64_t candidate)
      : expression_(expression),
        plan_(plan),
        inputs_(inputs),
        results_(results),
        element_(expression, inputs, steps),
        operands_(aligned(inputs, results)),
        iteration_(dimensions(), operands_),
        division_(iteration_, plan.rows(), plan.columns(), numbers_held(), candidate) {}

  // Whether the elements of each row are neighbours, or one number for all of them.
  bool lies_in_rows() const {
    const auto row = dimensions_of(plan_.shape_of_row(), operands_);
    if (row.size() != 1) return false;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const bool may_be_broadcast =
          i < inputs_.size() || plan_.columns() == 1 || plan_.makes_numbers(result_step(i - inputs_.size()));
      if (row[0].strides[i] != 1 && !(may_be_broadcast && row[0].strides[i] == 0)) return false;
    }
    return true;
  }

  KernelSource emit() const {
    const auto threads = division_.row_threads * division_.block_rows;
    const std::string constants = index_type({plan_.columns()}) + constant("columns", plan_.columns()) +
                                  constant("row_threads", division_.row_threads) +
                                  constant("items", division_.items) + constant("width", division_.width);
    std::string body = iteration_.waiting() + indices() + loads();
    for (std::size_t pass = 0; pass <= plan_.last_pass(); ++pass) {
      body += numbers(pass) + elements(pass) + looks_at_rows(pass);
    }
    const std::string kernel = std::string(device::rows) + "extern \"C\" __global__ void __launch_bounds__(" +
                               number(threads) + ") " + KernelSource::kName + "(" +
                               iteration_.parameters(inputs_.size()) + ") {\n" + body + "}\n";
    return {with_prelude(constants, kernel),
            static_cast<unsigned>((plan_.rows() + division_.block_rows - 1) / division_.block_rows),
            static_cast<unsigned>(threads), false};
  }

 private:
  static std::string number(std::int64_t value) { return std::to_string(value); }
  static std::string number(std::size_t value) { return std::to_string(value); }

  const Step& step(std::size_t s) const { return expression_.steps[s]; }
  std::size_t result_step(std::size_t r) const { return expression_.results[r].index; }
  std::string type_of(std::size_t s) const { return ElementSource::type(element_.tensor(kernels::step(s))); }

  std::vector<at::Tensor> aligned(at::TensorList inputs, at::TensorList results) const {
    std::vector<at::Tensor> all;
    for (std::size_t i = 0; i < inputs.size(); ++i) all.push_back(plan_.aligned_input(i, inputs[i]));
    for (std::size_t r = 0; r < results.size(); ++r) {
      all.push_back(plan_.aligned_result(result_step(r), results[r]));
    }
    return all;
  }

  // Those that count rows, and the one along them.
  std::vector<Dimension> dimensions() const {
    auto all = dimensions_of(plan_.shape_of_rows(), operands_, plan_.shape_of_row().size());
    all.push_back(dimensions_of(plan_.shape_of_row(), operands_).back());
    return all;
  }

  // The inputs, and beside them what every step over rows but one looks at.
  std::int64_t numbers_held() const {
    const auto looks = std::count_if(expression_.steps.begin(), expression_.steps.end(), is_over_rows);
    return static_cast<std::int64_t>(inputs_.size()) + looks - 1;
  }

  std::string indices() const {
    const std::string index(iteration_.index_type());
    std::string text = "  " + index + " rest = static_cast<" + index + ">(blockIdx.x) * " +
                       number(division_.block_rows) + " + threadIdx.x / row_threads;\n";
    if (plan_.rows() % division_.block_rows != 0)
      text += "  if (rest >= " + number(plan_.rows()) + "LL) return;\n";
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
      const std::string n = number(i);
      if (iteration_.is_broadcast(i)) {
        once += "  const auto a" + n + " = widen(load<1>(" + iteration_.place(i) + ").at[0]);\n";
      } else {
        once += "  Vector<" + ElementSource::type(inputs_[i]) + ", width> v" + n + "[items];\n";
        each += "    v" + n + "[item] = load<width>(" + iteration_.place(i) + ");\n";
      }
    }
    return each.empty() ? once : once + for_items(each);
  }

  // What is known of each row when a pass begins: what steps over rows have found, and what is made of that.
  std::string numbers(std::size_t pass) const {
    std::string text, stores;
    for (std::size_t s = 0; s < expression_.steps.size(); ++s) {
      if (plan_.makes_numbers(s) && plan_.pass(s) == pass) text += "  " + line(s);
    }
    for (std::size_t r = 0; r < results_.size(); ++r) {
      if (!plan_.makes_numbers(result_step(r)) || plan_.pass(result_step(r)) != pass) continue;
      const std::string type = ElementSource::type(results_[r]);
      stores += "    *(" + iteration_.place(inputs_.size() + r) + ") = Narrow<" + type + ">::of(" +
                ElementSource::name(expression_.results[r]) + ");\n";
    }
    // One thread of each row.
    return stores.empty() ? text : text + "  if (threadIdx.x % row_threads == 0) {\n" + stores + "  }\n";
  }

  std::string elements(std::size_t pass) const {
    std::string kept, taken, computed;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (iteration_.is_broadcast(i) || !is_needed_in(pass, input(i))) continue;
      const std::string n = number(i);
      taken += "      const auto a" + n + " = widen(v" + n + "[item].at[lane]);\n";
    }
    for (std::size_t s = 0; s < expression_.steps.size(); ++s) {
      const std::string n = number(s);
      if (is_over_rows(step(s)) && plan_.pass(s) == pass + 1) {
        kept += "  Row row" + n + ";\n";
        // Some are given the type to compute in.
        const std::string type = gives_numbers(step(s)) ? type_of(s) : "float";
        computed += "      row" + n + "[item][lane] = as<" + type + ">(" +
                    ElementSource::name(x_of(step(s))) + ");\n";
      }
      if (plan_.makes_numbers(s)) continue;
      if (plan_.computed_in(s) == pass) {
        computed += "      " + line(s);
        if (!is_needed_after(pass, kernels::step(s))) continue;
        kept += "  arithmetic_t<" + type_of(s) + "> k" + n + "[items][width];\n";
        computed += "      k" + n + "[item][lane] = t" + n + ";\n";
      } else if (plan_.computed_in(s) < pass && is_needed_in(pass, kernels::step(s))) {
        taken += "      const auto t" + n + " = k" + n + "[item][lane];\n";
      }
    }
    return computed.empty() ? "" : kept + for_items(with_stores(pass, taken + computed));
  }

  // The lines for one element, and where results among them go.
  std::string with_stores(std::size_t pass, std::string body) const {
    std::string vectors, stores;
    for (std::size_t r = 0; r < results_.size(); ++r) {
      if (plan_.makes_numbers(result_step(r)) || plan_.computed_in(result_step(r)) != pass) continue;
      const std::string n = number(r), type = ElementSource::type(results_[r]);
      vectors += "    Vector<" + type + ", width> r" + n + ";\n";
      body += "      r" + n + ".at[lane] = Narrow<" + type + ">::of(" +
              ElementSource::name(expression_.results[r]) + ");\n";
      stores += "    store(" + iteration_.place(inputs_.size() + r) + ", r" + n + ");\n";
    }
    return vectors + for_lanes(body) + stores;
  }

  // Whether the elements of this pass are made of `wanted`.
  bool is_needed_in(std::size_t pass, const Value& wanted) const {
    const auto is_wanted = [&](const Argument& argument) {
      const auto* value = std::get_if<Value>(&argument);
      return value && *value == wanted;
    };
    for (std::size_t s = 0; s < expression_.steps.size(); ++s) {
      const bool over_rows = is_over_rows(step(s));
      if (over_rows && plan_.pass(s) == pass + 1 && x_of(step(s)) == wanted) return true;
      if (plan_.makes_numbers(s) || plan_.computed_in(s) != pass) continue;
      const auto& arguments = step(s).arguments;
      const auto first = arguments.begin() + (over_rows ? 1 : 0);  // its row is at hand
      if (std::any_of(first, arguments.end(), is_wanted)) return true;
    }
    return false;
  }
  bool is_needed_after(std::size_t pass, const Value& wanted) const {
    while (++pass <= plan_.last_pass()) {
      if (is_needed_in(pass, wanted)) return true;
    }
    return false;
  }

  // Steps over rows at the end of a pass, each with shared memory of its own for two turns.
  std::string looks_at_rows(std::size_t pass) const {
    std::string text;
    for (std::size_t s = 0; s < expression_.steps.size(); ++s) {
      if (is_over_rows(step(s)) && plan_.pass(s) == pass + 1) text += look_at_row(s);
    }
    return text;
  }

  std::string look_at_row(std::size_t s) const {
    const std::string n = number(s), turn = "<" + number(2 * s) + ">", over = "over" + n, row = "row" + n,
                      function = device_function(step(s));
    if (gives_numbers(step(s))) return "  const float " + over + " = " + function + turn + "(" + row + ");\n";
    const auto epsilon = epsilon_of(step(s));
    return "  const " + function + turn + " " + over + "(" + row +
           (epsilon ? ", " + literal(*epsilon, "float") : "") + ");\n";
  }

  std::string line(std::size_t s) const {
    const std::string begin = "const auto t" + number(s) + " = ";
    if (is_view(step(s))) return begin + ElementSource::name(x_of(step(s))) + ";\n";
    if (!is_over_rows(step(s))) return element_.step(s);
    // Rounded as if it went to memory.
    return begin + "as<" + type_of(s) + ">(" + found_in_row(s) + ");\n";
  }

  // What a step over rows gives, for one element or for all.
  std::string found_in_row(std::size_t s) const {
    const std::string over = "over" + number(s);
    if (gives_numbers(step(s))) return over;
    const std::string value = over + "(row" + number(s) + "[item][lane])";
    const auto affine = affine_of(step(s));
    const std::string weight = affine.weight ? ElementSource::name(*affine.weight) : "",
                      bias = affine.bias ? ElementSource::name(*affine.bias) : "";
    if (affine.weight && affine.bias) return "fn::multiply_add(" + value + ", " + weight + ", " + bias + ")";
    return affine.weight ? value + " * " + weight : affine.bias ? value + " + " + bias : value;
  }

  const Expression& expression_;
  const RowPlan& plan_;
  at::TensorList inputs_, results_;
  ElementSource element_;
  std::vector<at::Tensor> operands_;
  Iteration iteration_;
  RowDivision division_;
};

// Whether Emitter has words for this step over rows.
bool has_row_kernel(const Step& step, at::TensorList inputs, const at::Tensor& x, const at::Tensor& made) {
  if (!is_float_of_ours(x.scalar_type()) || !is_float_of_ours(made.scalar_type())) return false;
  if (device_function(step).empty()) return false;
  const auto affine = affine_of(step);
  const auto fits = [&](const std::optional<Value>& value) {
    if (!value) return true;
    if (value->kind != Value::Kind::kInput) return false;
    const at::Tensor& tensor = inputs[value->index];
    return tensor.sizes() == x.sizes().slice(x.dim() - row_dimensions(step, x)) &&
           is_float_of_ours(tensor.scalar_type());
  };
  return fits(affine.weight) && fits(affine.bias);
}

}  // namespace

bool has_row_kernel(const Expression& expression, at::TensorList inputs, at::TensorList steps) {
  if (inputs.empty()) return false;
  const auto plan = RowPlan::of(expression, inputs, steps);
  if (!plan || plan->rows() == 0 || plan->columns() == 0 || plan->columns() > kLongestRow) return false;
  const ElementSource element(expression, inputs, steps);
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const Step& step = expression.steps[s];
    const bool is_known = is_over_rows(step)
                              ? has_row_kernel(step, inputs, element.tensor(x_of(step)), steps[s])
                              : is_view(step) || has_kernel(step);
    if (!is_known || device_type(steps[s].scalar_type()).empty()) return false;
  }
  for (const at::Tensor& tensor : inputs) {
    if (device_type(tensor.scalar_type()).empty()) return false;
  }
  std::vector<at::Tensor> results;
  for (const Value& value : expression.results) {
    if (value.kind == Value::Kind::kInput) return false;
    results.push_back(steps[value.index]);
  }
  return Emitter(expression, inputs, steps, results, *plan, 0).lies_in_rows();
}

KernelSource row_source(const Expression& expression, at::TensorList inputs, at::TensorList steps,
                        at::TensorList results, std::int64_t candidate) {
  if (!has_row_kernel(expression, inputs, steps))
    throw InvalidInput("[nimble::rows] no kernel computes this over rows: " + to_string(expression));
  const auto plan = RowPlan::of(expression, inputs, steps);
  return Emitter(expression, inputs, steps, results, *plan, candidate).emit();
}

}  // namespace nimble::kernels
