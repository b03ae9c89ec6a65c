// What is computed from weights alone is computed ahead of time, and again only when a weight has changed.
//
//   %1 = fold_batch_norm(extern2, …)       %4 = convolution(input0, derived1, …)
//   %4 = convolution(input0, %1, …)  ──▶
//                                          once: derived1 = fold_batch_norm(extern2, …)
//
// That is how the other rewrites make folded and merged weights: as ordinary tasks, which this one takes out.
// It also finds what the user's own code computes from weights: casts by autocast, weight norms, masks.

#include <ATen/ATen.h>

#include <algorithm>

#include "nimble/torch/derivation.h"
#include "nimble/torch/fixed_buffers.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

bool is_computed(const Program& program, const Uses& uses, BufferId buffer) {
  const auto writers = uses.writers(buffer);
  return !writers.empty() &&
         std::ranges::all_of(writers, [&](TaskId id) { return only_computes(program.task(id).op); });
}

// Weights, and what could at best be computed from nothing else.
std::vector<bool> candidates(const Program& program, const Uses& uses) {
  std::vector<bool> fixed(program.buffers.size());
  const c10::Device device = program.device();
  for (std::uint32_t b = 0; b < fixed.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.device != device) continue;  // a captured graph does not see host memory change
    const bool written = !uses.writers(BufferId{b}).empty();
    switch (buffer.kind) {
      case BufferKind::kConstant:
      case BufferKind::kDerived:
        fixed[b] = !written;
        break;
      case BufferKind::kExternal:
        fixed[b] = !written && counts_versions(buffer.outside);
        break;
      case BufferKind::kInternal:
        fixed[b] = is_computed(program, uses, BufferId{b}) && !buffer.returned;
        break;
      default:
        break;
    }
  }
  return fixed;
}

TensorRef whole(const Program& program, BufferId buffer) {
  const auto bytes = static_cast<std::int64_t>(program.buffer(buffer).bytes);
  return {.buffer = buffer, .sizes = {bytes}, .strides = {1}, .dtype = at::kByte};
}

Rewritten apply(Program program, const RewriteContext&) {
  const std::vector<bool> fixed = fixed_buffers(program, candidates(program, Uses(program)));
  Rewritten result{.program = program};
  auto derivation = std::make_shared<Derivation>();
  derivation->program.buffers = program.buffers;
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    if (!is_fixed(program.tasks[i], fixed)) continue;
    derivation->program.tasks.push_back(program.tasks[i]);
    result.sites.push_back(task_name(program, TaskId{i}));
  }
  if (result.sites.empty()) return result;
  std::erase_if(result.program.tasks, [&](const Task& task) { return is_fixed(task, fixed); });

  const c10::InferenceMode ordinary(false);
  std::vector<bool> known(program.buffers.size());
  for (const Task& task : result.program.tasks) {
    for (const TensorRef& ref : task.reads) {
      const std::size_t b = ref.buffer.index();
      Buffer& buffer = result.program.buffers[b];
      if (!fixed[b] || buffer.kind != BufferKind::kInternal || known[b]) continue;
      known[b] = true;
      buffer.kind = BufferKind::kDerived;
      buffer.outside = at::empty({static_cast<std::int64_t>(buffer.bytes)},
                                 at::TensorOptions(buffer.device).dtype(at::kByte));
      buffer.address = buffer.outside.mutable_data_ptr();
      derivation->program.outputs.push_back({.ref = whole(program, ref.buffer)});
      derivation->results.push_back(buffer.outside);
    }
  }
  derive(*derivation);
  result.program.derivations.push_back(std::move(derivation));
  return result;
}

}  // namespace

const Rewrite kWeightsOnce{
    .name = "weights_once",
    .summary = "what is computed from weights alone is computed once, until one changes",
    .exact = true,
    .always = true,
    .apply = apply};

}  // namespace nimble
