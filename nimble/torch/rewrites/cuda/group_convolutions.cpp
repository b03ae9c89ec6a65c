// Convolutions with filters of one pixel that read the same tensor become one launch, which makes all of
// their results.
//
//   %1 = nimble::matrix_convolution(%0, w, b, …)
//   %2 = nimble::matrix_convolution(%0, v, c, …)   ──▶   %1, %2 = nimble::matrix_convolutions(%0, [w, v], …)
//
// Each result stays a tensor of its own, so that nobody who reads one has to know. On streams of their own
// they would run side by side, in each other's way, so that is what the one launch is measured against. How
// each of them is computed alone does not matter: all of them are asked that are such products.

#include <algorithm>
#include <iterator>

#include "nimble/kernels/matrix_source.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/matrix_kernel.h"
#include "nimble/torch/rewrites/cuda/slices.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/weights_first.h"

namespace nimble {
namespace {

struct Sibling {
  TaskId task;
  ConvolutionCall call;
  TensorRef result;
};

class Group {
 public:
  Group(const Program& program, const RewriteContext& context)
      : program_(program),
        precise_(context.precise),
        uses_(program),
        heights_(heights(program)),
        edit_(program),
        chooser_(context) {}

  Rewritten run() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      const auto first = sibling_at(TaskId{i});
      if (!first) continue;
      const std::vector<Sibling> siblings = siblings_of(*first);
      if (siblings.size() > 1) group(siblings);
    }
    Rewritten result{.program = {}, .sites = std::move(sites_), .gained = chooser_.gained()};
    result.program = std::move(edit_).finish();
    return result;
  }

 private:
  std::optional<Sibling> sibling_at(TaskId id) const {
    const Task& task = program_.task(id);
    auto call = edit_.touches(id) ? std::nullopt : convolution_call(task, uses_);
    if (!call || call->added) return {};
    const ImageConvolution& c = call->convolution;
    const bool dense = c.weight.sizes[0] == 1 || c.weight.strides[0] == c.weight.sizes[1];
    if (!c.is_matrix_product() || !suits_matrix_kernel(c) || !dense || !uses_.never_rewritten(c.x) ||
        !uses_.is_weight(c.weight) || (c.bias && !uses_.is_weight(*c.bias))) {
      return {};
    }
    const auto made = made_by(task);  // else somebody gave it the tensor to write to
    if (!made) return {};
    return Sibling{id, *std::move(call), made->front()};
  }

  // With the first of them. None depends on another: all that they read is the same tensor, and weights.
  std::vector<Sibling> siblings_of(const Sibling& first) const {
    std::vector<Sibling> siblings;
    for (const TaskId reader : uses_.readers(first.call.convolution.x.buffer)) {
      if (reader < first.task || siblings.size() == kernels::kMostProducts) continue;
      auto sibling = sibling_at(reader);
      if (sibling && belongs_to(*sibling, first)) siblings.push_back(*std::move(sibling));
    }
    return siblings;
  }

  bool belongs_to(const Sibling& sibling, const Sibling& first) const {
    const Task &a = program_.task(sibling.task), &b = program_.task(first.task);
    const ImageConvolution &c = sibling.call.convolution, &of_first = first.call.convolution;
    return c.x == of_first.x && sibling.call.after == first.call.after &&
           c.bias.has_value() == of_first.bias.has_value() && a.part == b.part && a.state == b.state &&
           uses_.is_there(c.weight, first.task) && (!c.bias || uses_.is_there(*c.bias, first.task));
  }

  void group(const std::vector<Sibling>& siblings) {
    static const auto op = find_operator("nimble::matrix_convolutions");
    const TaskId first = siblings.front().task;
    TensorRefList results;
    for (const Sibling& sibling : siblings) results.refs.emplace_back(sibling.result);
    std::vector<std::vector<Operand>> arguments = ways_of(siblings);
    std::vector<std::vector<Task>> ways;
    for (const auto& of_way : arguments) ways.push_back({edit_.make_task(first, op, of_way, {results})});
    const std::size_t best = chooser_.faster_of(edit_.buffers(), ways);
    if (!is_faster(ways[best], siblings)) return;
    chooser_.took(ways[best], tasks_of(siblings));
    edit_.replace(first, op, std::move(arguments[best]), {results});
    std::string site;
    for (const Sibling& sibling : siblings) {
      if (sibling.task != first) edit_.drop(sibling.task);
      site += (site.empty() ? "" : " and ") + task_name(program_, sibling.task);
    }
    sites_.push_back(site + ": matrix_convolutions " + std::to_string(best));
  }

  // The ways that our kernel has for one of them, for all of them.
  std::vector<std::vector<Operand>> ways_of(const std::vector<Sibling>& siblings) const {
    static const auto alone = find_operator("nimble::matrix_convolution");
    const ConvolutionCall& call = siblings.front().call;
    TensorRefList weights, biases;
    for (const Sibling& sibling : siblings) {
      weights.refs.emplace_back(sibling.call.convolution.weight);
      if (call.convolution.bias) biases.refs.emplace_back(*sibling.call.convolution.bias);
    }
    std::vector<std::vector<Operand>> ways;
    for (const MatrixWay& way : matrix_ways(call, precise_)) {
      ways.push_back({call.convolution.x, weights, biases, c10::IValue(call.after),
                      way.arguments[*argument_named(alone, "candidate")],
                      way.arguments[*argument_named(alone, "tf32")]});
    }
    return ways;
  }

  // The group ends before the last of them would. One that ends sooner may be the one that most is waiting
  // for: that must not wait much longer than it would beside the others. There, kernels that take 5 µs alone
  // take 10 to 15 in Inception-v3, so twice its time alone is what it has to wait anyway.
  bool is_faster(const std::vector<Task>& group, const std::vector<Sibling>& siblings) {
    constexpr double kBesideOthers = 2;
    const Sibling& waited_for =
        std::ranges::max(siblings, {}, [&](const Sibling& s) { return heights_[s.task.index()]; });
    const std::vector<std::vector<Task>> alone_or_group = {{program_.task(waited_for.task)}, group};
    return chooser_.faster_of(edit_.buffers(), alone_or_group, kBesideOthers) == 1 &&
           chooser_.faster_than_side_by_side(edit_.buffers(), group, tasks_of(siblings));
  }

  std::vector<Task> tasks_of(const std::vector<Sibling>& siblings) const {
    std::vector<Task> tasks;
    for (const Sibling& sibling : siblings) tasks.push_back(program_.task(sibling.task));
    return tasks;
  }

  const Program& program_;
  bool precise_;
  Uses uses_;
  std::vector<std::size_t> heights_;
  Edit edit_;
  Chooser chooser_;
  std::vector<std::string> sites_;
};

Rewritten apply(Program program, const RewriteContext& context) {
  if (!context.chooses()) return {.program = std::move(program)};
  const Program ordered = with_weights_first(std::move(program));
  return Group(ordered, context).run();
}

}  // namespace

const Rewrite kGroupConvolutions{
    .name = "group_convolutions",
    .summary =
        "convolutions with filters of one pixel on the same input become one launch, where that is faster "
        "than side by side",
    .on_cpu = false,
    .apply = apply};

}  // namespace nimble
