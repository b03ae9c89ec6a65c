#include "nimble/kernels/pointwise_source.h"

#include "nimble/core/error.h"
#include "nimble/kernels/element_source.h"
#include "nimble/kernels/iteration.h"

namespace nimble::kernels {
namespace {

// The text of one kernel. Inside it, `p` are the arguments, `v` what was loaded, `a` the inputs' and `t` the
// steps' values of one lane, `r` what is to be stored.
class Emitter {
 public:
  Emitter(const Expression& expression, at::TensorList inputs, at::TensorList steps, at::TensorList results)
      : expression_(expression),
        inputs_(inputs.size()),
        results_(results),
        element_(expression, inputs, steps),
        iteration_(dimensions_of(results[0].sizes(), operands_of(inputs, results)),
                   operands_of(inputs, results)),
        width_(iteration_.vector(spread_vector(results[0].numel(), kWidestVector))),
        work_(results[0].numel() / width_) {}

  KernelSource emit() const {
    const std::string head = "extern \"C\" __global__ void __launch_bounds__(" + number(block_size(work_)) +
                             ") " + KernelSource::kName + "(" + iteration_.parameters(inputs_) + ") {\n";
    const std::string kernel = head + iteration_.waiting() + indices() + loads() +
                               "#pragma unroll\n  for (int lane = 0; lane < " + number(width_) +
                               "; ++lane) {\n" + arithmetic() + "  }\n" + stores() + "}\n";
    return {with_prelude("", kernel), block_count(work_), block_size(work_), false};
  }

 private:
  static constexpr std::int64_t kWidestVector = 16;

  static std::vector<at::Tensor> operands_of(at::TensorList inputs, at::TensorList results) {
    std::vector<at::Tensor> operands(inputs.begin(), inputs.end());
    operands.insert(operands.end(), results.begin(), results.end());
    return operands;
  }
  static std::string number(std::int64_t value) { return std::to_string(value); }

  std::string indices() const {
    const std::string index(iteration_.index_type());
    return "  " + index + " rest = static_cast<" + index + ">(blockIdx.x) * " + number(block_size(work_)) +
           " + threadIdx.x;\n  if (rest >= " + number(work_) + "LL) return;\n" +
           iteration_.indices(iteration_.dimensions(), width_);
  }

  std::string loads() const {
    std::string text;
    for (std::size_t i = 0; i < inputs_; ++i) {
      text += "  const auto v" + std::to_string(i) + " = load<" +
              (iteration_.is_broadcast(i) ? "1" : number(width_)) + ">(" + iteration_.place(i) + ");\n";
    }
    for (std::size_t r = 0; r < results_.size(); ++r) {
      text += "  Vector<" + ElementSource::type(results_[r]) + ", " + number(width_) + "> r" +
              std::to_string(r) + ";\n";
    }
    return text;
  }

  std::string arithmetic() const {
    std::string text;
    for (std::size_t i = 0; i < inputs_; ++i) {
      const std::string n = std::to_string(i);
      text += "    const auto a" + n + " = widen(v" + n + ".at[" +
              (iteration_.is_broadcast(i) ? "0" : "lane") + "]);\n";
    }
    for (std::size_t s = 0; s < expression_.steps.size(); ++s) text += "    " + element_.step(s);
    for (std::size_t r = 0; r < results_.size(); ++r) {
      text += "    r" + std::to_string(r) + ".at[lane] = Narrow<" + ElementSource::type(results_[r]) +
              ">::of(" + ElementSource::name(expression_.results[r]) + ");\n";
    }
    return text;
  }

  std::string stores() const {
    std::string text;
    for (std::size_t r = 0; r < results_.size(); ++r) {
      text += "  store(" + iteration_.place(inputs_ + r) + ", r" + std::to_string(r) + ");\n";
    }
    return text;
  }

  const Expression& expression_;
  std::size_t inputs_;
  at::TensorList results_;
  ElementSource element_;
  Iteration iteration_;
  std::int64_t width_, work_;  // elements of one thread, and how many threads that takes
};

}  // namespace

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
