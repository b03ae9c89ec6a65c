#include "nimble/engine/compile.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include "nimble/torch/dispatch_mode.h"

namespace nimble {
namespace {

// The outside tensors are still the same objects.
class SameTensors final : public OutsideGuard {
 public:
  SameTensors(std::function<Tensors()> tensors) : tensors_(std::move(tensors)), seen_(tensors_()) {}
  bool holds() override {
    const Tensors now = tensors_();
    return std::equal(now.begin(), now.end(), seen_.begin(), seen_.end(),
                      [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
  }
  std::string what_changed() override { return "a tensor that Outside names is another at each call"; }

 private:
  std::function<Tensors()> tensors_;
  Tensors seen_;
};

class CppHost final : public Host {
 public:
  CppHost(const TensorFunction& function, const Outside& outside) : function_(function), outside_(outside) {}

  Tensors run(const Tensors& inputs, const Pauses*) override { return function_(inputs); }
  Tensors record(const Tensors& inputs, ProgramBuilder& builder) override {
    const DispatchModeGuard mode(builder);
    return function_(inputs);
  }
  void record_backward(ProgramBuilder& builder, const std::function<void()>& backward) override {
    const DispatchModeGuard mode(builder);
    backward();
  }
  Tensors outside() override { return outside_.tensors ? outside_.tensors() : Tensors{}; }
  std::unique_ptr<OutsideGuard> watch(const Program&) override {
    return outside_.tensors ? std::make_unique<SameTensors>(outside_.tensors) : nullptr;
  }
  void warn(const std::string& text) override { TORCH_WARN(text); }
  void log(const std::string& text) override { VLOG(0) << text; }

 private:
  const TensorFunction& function_;
  const Outside& outside_;
};

}  // namespace

struct CompiledFunction::State {
  TensorFunction function;
  Outside outside;
  Compiled compiled;

  std::int64_t variant() const { return outside.variant ? outside.variant() : 0; }
};

CompiledFunction::CompiledFunction(TensorFunction function, CompileOptions options, Outside outside)
    : state_(new State{std::move(function), std::move(outside), Compiled(std::move(options))}) {}

Tensors CompiledFunction::operator()(const Tensors& inputs) const {
  CppHost host(state_->function, state_->outside);
  return state_->compiled.call(inputs, state_->variant(), host).outputs;
}

void CompiledFunction::prepare(const Tensors& inputs) const {
  CppHost host(state_->function, state_->outside);
  state_->compiled.prepare(inputs, state_->variant(), host);
}

void CompiledFunction::refresh() const { state_->compiled.refresh(); }
Stats CompiledFunction::stats() const { return state_->compiled.stats(); }
std::string CompiledFunction::explain() const { return state_->compiled.explain(); }
std::string CompiledFunction::report(const Tensors& inputs) const {
  return state_->compiled.report(inputs, state_->variant());
}

CompiledFunction compile(TensorFunction function, CompileOptions options, Outside outside) {
  return {std::move(function), std::move(options), std::move(outside)};
}

}  // namespace nimble
