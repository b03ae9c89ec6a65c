// In training: a batch norm takes in the sum and the activation behind it, and the way back through it takes
// in the way back through the activation.
//
//   %1, mean, deviation = batch_norm(%0, …)
//   %2 = add(%1, %9)                          ──▶   %3, mean, deviation =
//   %3 = relu(%2)                                       nimble::batch_norm_training(%0, %9, …)
//
//   %5 = threshold_backward(%4, %3)           ──▶   %6, … =
//   %6, … = batch_norm_backward(%5, %0, …)              nimble::batch_norm_training_backward(%4, %0, …)
//
// PyTorch's batch norms have a block for each channel, which leaves most of a large GPU idle where images are
// large and channels few, and write and read everything once more for the activation. What the activation let
// through is computed again on the way back, from what the batch norm was given. Sums are rounded in another
// order, so this is done only where somebody said how far results of training may be from eager's.

#include <ATen/ATen.h>

#include <algorithm>

#include "nimble/kernels/batch_norm_source.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/batch_norm.h"
#include "nimble/torch/rewrites/cuda/sites.h"
#include "nimble/torch/rewrites/one_for_several.h"
#include "nimble/torch/rewrites/pointwise_tasks.h"

namespace nimble {
namespace {

using kernels::BatchNorm;

// A batch norm that takes the statistics of its batch, with what follows.
struct Forward {
  TaskId norm, last;
  std::vector<TaskId> behind;  // the sum, the activation
  std::string activation = "none";
  std::optional<TensorRef> added = {};
};

// A way back through one, with the way back through the activation behind it.
struct Backward {
  TaskId norm;
  TensorRef gradient, x, weight, mean, inverse_deviation;
  std::optional<TaskId> mask = {};
  std::string activation = "none";
  TensorRef bias = {};  // tells what the activation let through; without one it is not looked at
};

bool is_number_by_channel(const TensorRef* ref) {
  return ref && ref->dtype == at::kFloat && ref->sizes.size() == 1 && is_contiguous(*ref);
}

const TensorRef* result(const Task& task, std::size_t n) {
  return n < task.results.size() ? std::get_if<TensorRef>(&task.results[n]) : nullptr;
}

// The same elements, whatever autograd thinks of them.
bool are_same(const TensorRef& a, const TensorRef& b) {
  TensorRef other = b;
  other.requires_grad = a.requires_grad;
  return a == other;
}

class Fuse {
 public:
  Fuse(const Program& program, const RewriteContext& context)
      : program_(program), uses_(program), edit_(program), chooser_(context) {}

  Rewritten run() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      if (const auto site = backward_at(TaskId{i})) fuse(*site);
    }
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      if (const auto site = forward_at(TaskId{i})) fuse(*site);
    }
    Rewritten result{.program = {}, .sites = std::move(sites_), .gained = chooser_.gained()};
    result.program = std::move(edit_).finish();
    return result;
  }

 private:
  // A batch norm in training, of tensors that our kernels know.
  bool is_norm(const Task& task) const {
    using namespace batch_norm;
    if (!is_call_of(task, "aten::native_batch_norm") && !is_call_of(task, "aten::cudnn_batch_norm")) {
      return false;
    }
    const TensorRef* x = tensor_argument(task, kInput);
    const auto absent_or_numbers = [&](std::size_t n) {
      return !tensor_argument(task, n) || is_number_by_channel(tensor_argument(task, n));
    };
    return value_argument(task, kTraining).toBool() && x && fits(*x) && fits(first_result(task)) &&
           is_number_by_channel(tensor_argument(task, kGamma)) &&
           is_number_by_channel(tensor_argument(task, kBeta)) && absent_or_numbers(kMean) &&
           absent_or_numbers(kVariance) &&
           (tensor_argument(task, kMean) == nullptr) == (tensor_argument(task, kVariance) == nullptr);
  }
  static bool fits(const TensorRef& ref) {
    return BatchNorm::of(without_memory(ref), {}, "none").has_value();
  }

  std::optional<Forward> forward_at(TaskId id) const {
    const Task& norm = program_.task(id);
    if (!is_norm(norm) || !leaves_nothing(norm)) return {};
    Forward site{.norm = id, .last = id, .behind = {}};
    const auto take = [&](TaskId task) {
      site.behind.push_back(task);
      site.last = task;
    };
    auto reader = follower(id);
    if (const auto sum = reader ? plain_sum(program_.task(*reader)) : std::nullopt;
        sum && sum->a.buffer != sum->b.buffer) {
      const TensorRef& other = sum->a.buffer == first_result(norm).buffer ? sum->b : sum->a;
      if (fits(other) && can_wait(site, *reader)) {
        site.added = other;
        take(*reader);
        reader = follower(*reader);
      }
    }
    if (!reader) return site;
    const auto activation = fusible_activation(program_.task(*reader));
    if (activation && kernels::has_way_back(*activation) && can_wait(site, *reader)) {
      site.activation = *activation;
      take(*reader);
    }
    return site;
  }

  // The only one that sees the first result of a task, if it can be made together with it.
  std::optional<TaskId> follower(TaskId task) const {
    const auto reader = uses_.only_reader(task);
    const bool together =
        reader && !edit_.touches(*reader) && belong_together(program_.task(task), program_.task(*reader)) &&
        first_result(program_.task(*reader)).strides == first_result(program_.task(task)).strides;
    return together ? reader : std::nullopt;
  }

  // Nobody minds if all of it happens in the place of `later`: what it reads stays, and what the batch norm
  // writes besides its first result is not looked at in between.
  bool can_wait(const Forward& site, TaskId later) const {
    const auto can_move = [&](TaskId id) { return uses_.can_move(id, later); };
    if (!can_move(site.norm) || !std::ranges::all_of(site.behind, can_move)) return false;
    const auto between = [&](TaskId id) { return site.norm < id && id < later; };
    const Task& task = program_.task(site.norm);
    return std::ranges::none_of(task.writes, [&](const TensorRef& ref) {
      if (ref.buffer == first_result(task).buffer) return false;
      return std::ranges::any_of(uses_.readers(ref.buffer), between) ||
             std::ranges::any_of(uses_.writers(ref.buffer), between);
    });
  }

  // cuDNN leaves its own way back something that only that can read.
  bool leaves_nothing(const Task& norm) const {
    const TensorRef* room = result(norm, 3);
    if (!room) return true;
    return uses_.is_private(room->buffer) &&
           std::ranges::all_of(uses_.readers(room->buffer), [&](TaskId id) { return edit_.touches(id); });
  }

  std::optional<Backward> backward_at(TaskId id) const {
    const Task& task = program_.task(id);
    const bool cudnn = is_call_of(task, "aten::cudnn_batch_norm_backward");
    if (!cudnn && !is_call_of(task, "aten::native_batch_norm_backward")) return {};
    if (!cudnn && !value_argument(task, 7).toBool()) return {};  // not with the statistics of the batch
    const TensorRef* gradient = tensor_argument(task, cudnn ? 1 : 0);
    const TensorRef* x = tensor_argument(task, cudnn ? 0 : 1);
    const TensorRef *weight = tensor_argument(task, 2), *mean = tensor_argument(task, 5),
                    *inverse = tensor_argument(task, 6);
    if (!gradient || !x || !fits(*x) || !fits(*gradient) || gradient->sizes != x->sizes ||
        gradient->dtype != x->dtype || !is_number_by_channel(weight) || !is_number_by_channel(mean) ||
        !is_number_by_channel(inverse)) {
      return {};
    }
    for (std::size_t r = 0; r < 3; ++r) {
      if (!result(task, r) || !is_contiguous(*result(task, r))) return {};
    }
    Backward site{.norm = id,
                  .gradient = *gradient,
                  .x = *x,
                  .weight = *weight,
                  .mean = *mean,
                  .inverse_deviation = *inverse,
                  .bias = *weight};
    take_mask(site);
    return site;
  }

  // gradient = threshold_backward(arriving, activation(batch norm(x))), which nobody else looks at.
  void take_mask(Backward& site) const {
    const auto mask = uses_.maker(site.gradient);
    if (!mask || follower(*mask) != site.norm) return;
    const Task& task = program_.task(*mask);
    const auto activation = stopped_by(task);
    const TensorRef *arriving = tensor_argument(task, 0), *activated = tensor_argument(task, 1);
    if (!activation || !arriving || !activated || !fits(*arriving) || arriving->sizes != site.x.sizes ||
        arriving->dtype != site.x.dtype || !uses_.can_move(*mask, site.norm)) {
      return;
    }
    const auto maker = uses_.maker(*activated);
    if (!maker || fusible_activation(program_.task(*maker)) != activation) return;
    const TensorRef* normed = tensor_argument(program_.task(*maker), 0);
    const auto norm = normed ? uses_.maker(*normed) : std::nullopt;
    if (!norm || !is_norm(program_.task(*norm))) return;
    const Task& forward = program_.task(*norm);
    const TensorRef& bias = *tensor_argument(forward, batch_norm::kBeta);
    const bool is_its_own = are_same(*tensor_argument(forward, batch_norm::kInput), site.x) &&
                            are_same(*tensor_argument(forward, batch_norm::kGamma), site.weight) &&
                            are_same(*result(forward, 1), site.mean) &&
                            are_same(*result(forward, 2), site.inverse_deviation);
    if (!is_its_own || is_written_between(bias, *norm, site.norm) ||
        is_written_between(site.weight, *norm, site.norm) || is_written_between(site.x, *norm, site.norm)) {
      return;
    }
    site.mask = mask;
    site.activation = *activation;
    site.gradient = *arriving;
    site.bias = bias;
  }

  // Which activation a task leads back through, by what that gave.
  static std::optional<std::string> stopped_by(const Task& task) {
    const auto number = [&](std::size_t n) { return value_argument(task, n).toScalar().toDouble(); };
    if (is_call_of(task, "aten::threshold_backward") && number(2) == 0) return "relu";
    if (is_call_of(task, "aten::hardtanh_backward") && number(2) == 0 && number(3) == 6) return "relu6";
    return {};
  }

  bool is_written_between(const TensorRef& ref, TaskId first, TaskId last) const {
    return std::ranges::any_of(uses_.writers(ref.buffer), [&](TaskId id) { return first < id && id < last; });
  }

  void fuse(const Forward& site) {
    static const auto op = find_operator("nimble::batch_norm_training");
    using namespace batch_norm;
    const Task& norm = program_.task(site.norm);
    std::vector<Operand> arguments;
    for (const std::size_t n : {kInput, kGamma, kBeta, kMean, kVariance, kMomentum, kEps}) {
      arguments.push_back(norm.arguments[n]);
    }
    arguments.push_back(optional_ref(site.added));
    arguments.emplace_back(c10::IValue(site.activation));
    const TensorRef& x = *tensor_argument(norm, kInput);
    Members members(site.behind.begin(), site.behind.end());
    members.insert(site.norm);
    replace(site.last, std::move(members), op, std::move(arguments),
            {first_result(program_.task(site.last)), norm.results[1], norm.results[2], room(x)});
  }

  void fuse(const Backward& site) {
    static const auto op = find_operator("nimble::batch_norm_training_backward");
    const Task& norm = program_.task(site.norm);
    Members members = {site.norm};
    if (site.mask) members.insert(*site.mask);
    replace(site.norm, std::move(members), op,
            {site.gradient, site.x, site.weight, site.bias, site.mean, site.inverse_deviation,
             c10::IValue(site.activation)},
            {norm.results[0], norm.results[1], norm.results[2], room(site.x)});
  }

  TensorRef room(const TensorRef& x) {
    const auto norm = BatchNorm::of(without_memory(x), {}, "none");
    return edit_.new_tensor(norm->room(), at::kFloat, program_.buffer(x.buffer).device);
  }

  void replace(TaskId at, Members members, const c10::OperatorHandle& op, std::vector<Operand> arguments,
               std::vector<Operand> results) {
    const auto names = replace_if_faster({.members = std::move(members),
                                          .at = at,
                                          .op = op,
                                          .ways = {std::move(arguments)},
                                          .results = std::move(results)},
                                         program_, without_outside(edit_.buffers()), edit_, chooser_);
    if (names) sites_.push_back(*names);
  }

  const Program& program_;
  Uses uses_;
  Edit edit_;
  Chooser chooser_;
  std::vector<std::string> sites_;
};

Rewritten apply(Program program, const RewriteContext& context) {
  if (!context.trains || !context.tolerant) return {.program = std::move(program)};
  return Fuse(program, context).run();
}

}  // namespace

const Rewrite kFuseBatchNorm{
    .name = "fuse_batch_norm",
    .summary = "in training with a tolerance, batch norms take in what follows them, forward and back",
    .on_cpu = false,
    .for_training = true,
    .apply = apply};

}  // namespace nimble
