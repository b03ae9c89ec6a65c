#include "nimble/engine/rewriting.h"

#include <chrono>

#include "nimble/engine/measure_alone.h"
#include "nimble/torch/rewrites/registry.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

// A batch norm writes its statistics without a new version, but counts its batches in the same breath.
bool is_counter(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 0 && tensor.scalar_type() == at::kLong;
}

}  // namespace

void Rewriting::follow_weights(Executable& executable) {
  if (!weights || weights->unchanged()) return;
  executable.let_current_stream_wait();  // until nobody reads the old ones any more
  weights->look();
  derive_all(*program);
}

Rewriting rewrite(const std::shared_ptr<const Program>& program, std::span<const at::Tensor> inputs,
                  const CompileOptions& options, bool trains, std::span<const at::Tensor> outside) {
  Rewriting rewriting{.program = program};
  const auto rewrites = rewrites_named(options.rewrites);
  if (rewrites.empty()) return rewriting;
  const auto start = Clock::now();
  RewriteContext context{.device = program->device()};
  if (options.tune_seconds > 0) context.measure = measure_alone;
  AppliedRewrites applied = apply_rewrites(*program, rewrites, inputs, context, trains);
  rewriting.reports = std::move(applied.reports);
  rewriting.exact = applied.exact;
  std::vector<at::Tensor> sources = derived_from(applied.program);
  if (!sources.empty()) {
    for (const at::Tensor& tensor : outside) {
      if (is_counter(tensor)) sources.push_back(tensor);
    }
    rewriting.weights.emplace(sources);
  }
  rewriting.program = std::make_shared<const Program>(std::move(applied.program));
  rewriting.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return rewriting;
}

}  // namespace nimble
