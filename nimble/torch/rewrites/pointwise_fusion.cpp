#include "nimble/torch/rewrites/pointwise_fusion.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "nimble/kernels/cpu/block_program.h"
#include "nimble/kernels/element_source.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/cuda/sites.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/one_for_several.h"
#include "nimble/torch/rewrites/pointwise_tasks.h"

namespace nimble {
namespace {

using kernels::Expression;
using kernels::Step;
using kernels::Value;

constexpr std::size_t kMostInputs = 12, kMostSteps = 32, kMostResults = 4;

// One kernel for some tasks.
struct Kernel {
  Expression expression;
  std::vector<TensorRef> inputs, results;
  TaskId at;  // the member in whose place it runs
};

class Fuse {
 public:
  Fuse(const Program& program, const RewriteContext& context, const PointwiseKernel& kernel)
      : program_(program),
        kernel_(kernel),
        uses_(program),
        depth_(depths(program)),
        trains_(context.trains),
        chooser_(context),
        placement_(program, uses_) {}

  Rewritten run() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      if (can_be_member(program_.tasks[i])) add(TaskId{i});
    }
    Edit edit(program_);
    Rewritten result{.program = {}};
    for (const auto& [last, members] : groups_) {
      if (members.size() > 1) replace(edit, members, result.sites);
    }
    result.program = std::move(edit).finish();
    result.gained = chooser_.gained();
    return result;
  }

 private:
  bool can_be_member(const Task& task) const {
    if (!makes_one_tensor(program_, uses_, task)) return false;
    std::vector<TensorRef> inputs;
    return kernel_.can_do(
        task, step_of(program_, task, [&](const TensorRef& ref) { return input_of(inputs, ref); }));
  }

  // Puts the task into a group, with all that feed it and can be done in the same kernel.
  void add(TaskId id) {
    Members members = {id}, taken;
    for (const TensorRef& ref : program_.task(id).reads) {
      const auto feeder = feeder_of(ref, id);
      if (!feeder || taken.contains(*feeder)) continue;
      Members more = members, all_taken = taken;
      more.insert(groups_.at(*feeder).begin(), groups_.at(*feeder).end());
      all_taken.insert(*feeder);
      if (!kernel_of(more) || !nobody_waits_longer(id, more, all_taken)) continue;
      members = std::move(more);
      taken = std::move(all_taken);
    }
    for (const TaskId group : taken) groups_.erase(group);
    for (const TaskId member : members) group_of_.insert_or_assign(member, id);
    groups_.emplace(id, std::move(members));
  }

  // The group that makes `ref` for `reader`, which could go on with each of its elements.
  std::optional<TaskId> feeder_of(const TensorRef& ref, TaskId reader) const {
    const auto maker = uses_.maker(ref);
    if (!maker || !group_of_.contains(*maker)) return {};
    if (uses_.is_weight(ref)) return {};  // it is made once
    const Task& task = program_.task(reader);
    if (ref.sizes != first_result(task).sizes) return {};  // it would be computed again for each copy
    if (!belong_together(program_.task(*maker), task)) return {};
    return group_of_.at(*maker);
  }

  // Whether that is so if `members`, which are `id` and all of the groups `taken`, become one.
  bool nobody_waits_longer(TaskId id, const Members& members, const Members& taken) const {
    const std::size_t begin = begins_behind(members);
    std::size_t seen_by_others = 0;
    for (const TaskId number : taken) {
      const Members& group = groups_.at(number);
      const bool is_seen = std::ranges::any_of(group, [&](TaskId member) {
        return is_seen_outside(uses_, first_result(program_.task(member)), members);
      });
      if (is_seen) {
        ++seen_by_others;
        if (begin > begins_behind(group)) return false;
      } else if (!waits_longest_for(group, id)) {
        return false;
      }
    }
    return seen_by_others <= 1;  // who waits for one of two branches is not made to wait for both
  }

  bool waits_longest_for(const Members& group, TaskId id) const {
    std::size_t latest = 0;
    for (const TaskId member : group) latest = std::max(latest, depth_[member.index()]);
    return depth_of(program_.task(id).reads, uses_, depth_, id) <= latest;
  }

  // By the depth of the last that the members wait for.
  std::size_t begins_behind(const Members& members) const {
    std::size_t depth = 0;
    for (const TaskId member : members) {
      for (const TensorRef& ref : program_.task(member).reads) {
        const auto maker = uses_.maker(ref);
        if (maker && members.contains(*maker)) continue;
        depth = std::max(depth, depth_of({&ref, 1}, uses_, depth_, member));
      }
    }
    return depth;
  }

  // None where one kernel cannot do all this.
  std::optional<Kernel> kernel_of(const Members& members) const {
    Kernel kernel{.expression = {}, .inputs = {}, .results = {}, .at = *members.begin()};
    Expression& expression = kernel.expression;
    std::map<TaskId, Value> made;
    for (const TaskId member : members) {
      const Task& task = program_.task(member);
      expression.steps.push_back(step_of(program_, task, [&](const TensorRef& ref) {
        const auto maker = uses_.maker(ref);
        return maker && members.contains(*maker) ? made.at(*maker) : input_of(kernel.inputs, ref);
      }));
      const Value value = kernels::step(expression.steps.size() - 1);
      made.emplace(member, value);
      if (!is_seen_outside(uses_, first_result(task), members)) continue;
      expression.results.push_back(value);
      kernel.results.push_back(first_result(task));
    }
    expression.inputs = kernel.inputs.size();
    const auto at = placement_.find(members, kernel.inputs, kernel.results);
    const bool fits = kernel.inputs.size() <= kMostInputs && expression.steps.size() <= kMostSteps &&
                      !kernel.results.empty() && kernel.results.size() <= kMostResults;
    if (!at || !fits) return {};
    kernel.at = *at;
    return kernel;
  }

  // A few operators of ATen lay their result out as another one of their operands than the kernel does.
  static bool is_laid_out_as_recorded(const Kernel& kernel) {
    std::vector<at::Tensor> tensors;
    for (const TensorRef& input : kernel.inputs) tensors.push_back(without_memory(input));
    const auto results = kernels::evaluate(kernel.expression, tensors);
    return std::ranges::equal(results, kernel.results, [](const at::Tensor& made, const TensorRef& ref) {
      return made.strides() == at::IntArrayRef(ref.strides);
    });
  }

  void replace(Edit& edit, const Members& members, std::vector<std::string>& sites) {
    const auto kernel = kernel_of(members);
    // Elsewhere the layout of what follows may change with it.
    if (!kernel || (trains_ && !is_laid_out_as_recorded(*kernel))) return;
    TensorRefList inputs, results;
    for (const TensorRef& ref : kernel->inputs) inputs.refs.emplace_back(ref);
    for (const TensorRef& ref : kernel->results) results.refs.emplace_back(ref);
    const auto names = replace_if_faster({.members = members,
                                          .at = kernel->at,
                                          .op = kernel_.op,
                                          .ways = {{inputs, c10::IValue(to_string(kernel->expression))}},
                                          .results = {results}},
                                         program_, edit.buffers(), edit, chooser_);
    if (!names) return;
    placement_.move(members, kernel->at);
    sites.push_back(*names);
  }

  const Program& program_;
  const PointwiseKernel& kernel_;
  Uses uses_;
  std::vector<std::size_t> depth_;
  bool trains_;
  Chooser chooser_;
  Placement placement_;
  std::map<TaskId, Members> groups_;   // by the last task of each
  std::map<TaskId, TaskId> group_of_;  // by task: the last one of its group
};

bool is_of_floats(const Task& task) {
  const auto is_float = [](const TensorRef& ref) { return ref.dtype == at::kFloat; };
  return std::ranges::all_of(task.reads, is_float) && std::ranges::all_of(task.writes, is_float);
}

}  // namespace

PointwiseKernel pointwise_kernel_on(c10::Device device) {
  if (device.is_cuda()) {
    static const auto op = find_operator("nimble::pointwise");
    return {op, [](const Task&, const Step& step) { return kernels::has_kernel(step); }};
  }
  static const auto op = find_operator("nimble::pointwise_blocks");
  return {op, [](const Task& task, const Step& step) {
            return is_of_floats(task) && kernels::has_block_function(step);
          }};
}

Rewritten fuse_pointwise(const Program& program, const RewriteContext& context,
                         const PointwiseKernel& kernel) {
  return Fuse(program, context, kernel).run();
}

}  // namespace nimble
