#include "nimble/engine/usual_errors.h"

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>

#include <cmath>

#include "nimble/engine/distance.h"
#include "nimble/torch/interpreter.h"
#include "nimble/torch/outside_state.h"
#include "nimble/torch/run_in_double.h"

namespace nimble {
namespace {

// By up to a fiftieth of the largest value. Nothing at random, which would draw from the user's generator.
at::Tensor nudged(const at::Tensor& input, int run) {
  if (!input.is_floating_point() || input.numel() == 0) return input;
  const at::Tensor pattern =
      ((at::arange(input.numel(), input.options().dtype(at::kInt)) * (2 * run + 1)) % 17)
          .to(input.scalar_type())
          .div_(8)
          .sub_(1)
          .view(input.sizes());
  return input + input.abs().max() * pattern / 50;
}

std::vector<double> measured(const Program& program, std::span<const at::Tensor> inputs) {
  constexpr int kRuns = 4;
  const OutsideState before = OutsideState::save(program, inputs);
  std::vector<double> errors(program.outputs.size());
  for (int run = 0; run < kRuns; ++run) {
    std::vector<at::Tensor> given;
    for (const at::Tensor& input : inputs) given.push_back(nudged(input, run));
    const auto exact = run_in_double(program, given);
    if (!exact) return {};
    const auto put_back = c10::make_scope_exit([&] { before.try_restore(); });
    Interpreter interpreter(program, given);
    interpreter.run();
    const auto eager = std::move(interpreter).outputs();
    for (std::size_t n = 0; n < errors.size(); ++n) {
      if (!eager[n].is_floating_point() && !eager[n].is_complex()) continue;
      errors[n] += std::pow(distance(eager[n], exact->results[n]).mean, 2) / kRuns;
    }
  }
  for (double& error : errors) error = std::sqrt(error);
  return errors;
}

}  // namespace

std::vector<double> usual_errors(const Program& program, std::span<const at::Tensor> inputs) {
  const at::NoGradGuard no_grad;
  try {
    return measured(program, inputs);
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace nimble
