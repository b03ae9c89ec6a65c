#include "tests/conformance/replayed.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "nimble/core/verify.h"
#include "nimble/torch/dispatch_mode.h"
#include "nimble/torch/outside_state.h"
#include "nimble/torch/program_builder.h"

namespace nimble::testing {
namespace {

Tensors run(const Subject& subject, const Tensors& inputs) {
  const at::NoGradGuard no_grad;
  return subject.function(inputs);
}

// Inputs keep how they lie in memory, which a clone does not.
Tensors same_layout_copies(const Tensors& tensors) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor storage = at::empty({0}, tensor.options()).set_(tensor.storage()).clone();
    result.push_back(at::as_strided(storage, tensor.sizes(), tensor.strides(), tensor.storage_offset()));
  }
  return result;
}

}  // namespace

Tensors copies(const Tensors& tensors) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.detach().clone());
  return result;
}

void write_back(const Tensors& tensors, const Tensors& saved) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(saved[i]);
}

std::shared_ptr<const Program> record(const Subject& subject, c10::Device device) {
  Backend& backend = backend_for(device);
  backend.watch_allocations();
  const Tensors saved = copies(subject.outside);
  const Tensors inputs = subject.fresh_inputs();
  run(subject, same_layout_copies(inputs));  // libraries choose their kernels
  ProgramBuilder builder(inputs, ProgramBuilder::OnRefusal::kThrow);
  Tensors outputs;
  {
    const at::NoGradGuard no_grad;
    const DispatchModeGuard mode(builder);
    outputs = subject.function(inputs);
  }
  auto program = std::make_shared<const Program>(builder.finish(outputs));
  write_back(subject.outside, saved);
  backend.check(*program);
  return program;
}

std::unique_ptr<Executable> prepare(const std::shared_ptr<const Program>& program, std::size_t streams,
                                    const BindOptions& options) {
  Backend& backend = backend_for(program->device());
  ExecutionPlan plan{program, dependencies(*program), memory_demand(*program, backend.alignment()), {}};
  plan.schedule = nimble::plan(plan.graph, plan.memory.specs, StreamLimit{streams});
  verify_or_throw(plan.graph, plan.memory.specs, plan.schedule);
  return backend.bind(std::move(plan), options);
}

::testing::AssertionResult replays_like_eager(const Subject& subject, Executable& executable, int times) {
  constexpr std::uint64_t kSeed = 7;
  std::vector<Tensors> inputs;
  for (int i = 0; i < times; ++i) inputs.push_back(subject.fresh_inputs());
  const Tensors start = copies(subject.outside);

  struct Run {
    std::vector<Tensors> results, inputs;
    Tensors outside;
  };
  const auto run_all = [&](const std::function<Tensors(const Tensors&)>& call) {
    write_back(subject.outside, start);
    at::manual_seed(kSeed);
    Run run;
    for (int i = 0; i < times; ++i) {
      const Tensors own = same_layout_copies(inputs[i]);
      run.results.push_back(call(own));
      run.inputs.push_back(copies(own));
    }
    // Copied at the end only: a later run must not change an earlier result.
    for (Tensors& results : run.results) results = copies(results);
    run.outside = copies(subject.outside);
    return run;
  };
  const Run eager = run_all([&](const Tensors& arguments) { return run(subject, arguments); });
  const Run replayed = run_all([&](const Tensors& arguments) { return executable.replay(arguments); });
  write_back(subject.outside, start);

  const auto differ = [](const Tensors& a, const Tensors& b, const std::string& what) -> std::string {
    if (a.size() != b.size()) return what + ": another number of tensors";
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i].strides() != b[i].strides() || !same_bits(a[i], b[i])) return what + " " + std::to_string(i);
    }
    return "";
  };
  for (int i = 0; i < times; ++i) {
    for (const std::string& difference : {differ(eager.results[i], replayed.results[i], "result"),
                                          differ(eager.inputs[i], replayed.inputs[i], "input")}) {
      if (!difference.empty()) {
        return ::testing::AssertionFailure() << "run " << i << ": " << difference << " differs from eager's";
      }
    }
  }
  const std::string difference = differ(eager.outside, replayed.outside, "outside tensor");
  if (!difference.empty()) return ::testing::AssertionFailure() << difference << " differs from eager's";
  return ::testing::AssertionSuccess();
}

void make_kernels_deterministic() {
  at::set_num_threads(1);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
}

}  // namespace nimble::testing
