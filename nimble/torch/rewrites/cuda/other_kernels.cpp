#include "nimble/torch/rewrites/cuda/other_kernels.h"

#include "nimble/kernels/depthwise_source.h"
#include "nimble/torch/rewrites/cuda/slices.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

// How many ways are worth trying: there are more, but each comes behind those that should take less time.
std::int64_t kernels_of(const Task& task) {
  constexpr std::int64_t kTiles = 4, kOfCublas = 4, kOfCudnn = 3;
  if (is_call_of(task, "nimble::matrix_convolution")) return kTiles;
  if (is_call_of(task, "nimble::depthwise_convolution")) return kernels::kDepthwiseCandidates;
  if (is_call_of(task, "nimble::pointwise_convolution")) return kOfCublas;
  if (is_call_of(task, "nimble::fused_convolution")) return kOfCudnn;
  return 0;
}

bool rounds_to_tf32(const Task& task) {
  const auto tf32 = argument_named(task.op, "tf32");
  return tf32 && value_argument(task, *tf32).toBool();
}

Task with(Task task, std::string_view argument, c10::IValue value) {
  task.arguments[*argument_named(task.op, argument)] = std::move(value);
  return task;
}

std::int64_t number_of(const Task& task) {
  return value_argument(task, *argument_named(task.op, "candidate")).toInt();
}

}  // namespace

std::vector<Task> other_kernels(const Task& task) {
  std::vector<Task> others;
  const std::int64_t kernels = kernels_of(task);
  if (kernels == 0) return others;
  for (std::int64_t n = 0; n < kernels; ++n) {
    if (n != number_of(task)) others.push_back(with(task, "candidate", n));
  }
  // What rounds less is always allowed.
  if (rounds_to_tf32(task)) others.push_back(with(task, "tf32", false));
  return others;
}

std::string kernel_name(const Task& task) {
  if (kernels_of(task) == 0) return "";
  return std::to_string(number_of(task)) + (rounds_to_tf32(task) ? " by TF32" : "");
}

}  // namespace nimble
