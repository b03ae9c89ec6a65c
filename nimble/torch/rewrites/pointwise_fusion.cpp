#include "nimble/torch/rewrites/pointwise_fusion.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/cuda/sites.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/pointwise_tasks.h"

namespace nimble {
namespace {

using kernels::Argument;
using kernels::Expression;
using kernels::Step;
using kernels::Value;

constexpr std::size_t kMostInputs = 12, kMostSteps = 32;

// Tasks that one kernel can do, with the last one's result.
struct Group {
  Expression expression;
  std::vector<TensorRef> inputs;
  std::vector<TaskId> members;
};

class Fuse {
 public:
  Fuse(const Program& program, const RewriteContext& context, const PointwiseKernel& kernel)
      : program_(program),
        kernel_(kernel),
        uses_(program),
        depth_(depths(program)),
        trains_(context.trains),
        chooser_(context) {}

  Rewritten run() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      if (auto group = group_of(TaskId{i})) groups_.emplace(TaskId{i}, *std::move(group));
    }
    Edit edit(program_);
    Rewritten result{.program = {}};
    for (const auto& [root, group] : groups_) {
      if (group.members.size() > 1) replace(edit, root, group, result.sites);
    }
    result.program = std::move(edit).finish();
    result.gained = chooser_.gained();
    return result;
  }

 private:
  // The task, and the groups of those that feed it and nobody else.
  std::optional<Group> group_of(TaskId id) {
    const Task& task = program_.task(id);
    if (!makes_one_tensor(program_, uses_, task)) return {};
    Group group{.expression = {}, .inputs = {}, .members = {}};
    std::vector<TaskId> taken;
    Step last = step_of(program_, task, [&](const TensorRef& ref) {
      const auto feeder = feeder_of(ref, id);
      if (!feeder) return input_of(group.inputs, ref);
      taken.push_back(*feeder);
      return append(group, groups_.at(*feeder));
    });
    if (!kernel_.can_do(task, last) || group.inputs.size() > kMostInputs ||
        group.expression.steps.size() >= kMostSteps) {
      return taken.empty() ? std::nullopt : alone(id);
    }
    finish(group, id, std::move(last));
    for (const TaskId feeder : taken) groups_.erase(feeder);
    return group;
  }

  // Where taking others in would make too much of it.
  std::optional<Group> alone(TaskId id) const {
    Group group{.expression = {}, .inputs = {}, .members = {}};
    const Task& task = program_.task(id);
    Step only = step_of(program_, task, [&](const TensorRef& ref) { return input_of(group.inputs, ref); });
    if (!kernel_.can_do(task, only)) return {};
    finish(group, id, std::move(only));
    return group;
  }

  static void finish(Group& group, TaskId id, Step last) {
    group.expression.steps.push_back(std::move(last));
    group.expression.results = {kernels::step(group.expression.steps.size() - 1)};
    group.expression.inputs = group.inputs.size();
    group.members.push_back(id);
  }

  // The group that makes `ref` for `reader` alone, and that it waits for longest.
  std::optional<TaskId> feeder_of(const TensorRef& ref, TaskId reader) const {
    const auto maker = uses_.maker(ref);
    if (!maker || !groups_.contains(*maker) || uses_.only_reader(*maker) != reader) return {};
    if (uses_.is_weight(ref)) return {};  // it is made once
    const Task& task = program_.task(reader);
    if (ref.sizes != first_result(task).sizes) return {};  // it would be computed again for each copy
    for (const TensorRef& other : task.reads) {
      for (const TaskId writer : uses_.writers(other.buffer)) {
        if (depth_[writer.index()] > depth_[maker->index()]) return {};
      }
    }
    return belong_together(program_.task(*maker), task) ? maker : std::nullopt;
  }

  // Puts the steps of `from` behind those of `group`; the value that they make.
  static Value append(Group& group, const Group& from) {
    const std::size_t first = group.expression.steps.size();
    const auto translated = [&](const Value& value) {
      return value.kind == Value::Kind::kStep ? kernels::step(first + value.index)
                                              : input_of(group.inputs, from.inputs[value.index]);
    };
    for (const Step& step : from.expression.steps) {
      Step copy = step;
      for (Argument& argument : copy.arguments) {
        if (auto* value = std::get_if<Value>(&argument)) *value = translated(*value);
      }
      group.expression.steps.push_back(std::move(copy));
    }
    group.members.insert(group.members.end(), from.members.begin(), from.members.end());
    return translated(from.expression.results[0]);
  }

  // A few operators of ATen lay their result out as another one of their operands than the kernel does.
  static bool is_laid_out_as(const TensorRef& ref, const Group& group) {
    std::vector<at::Tensor> tensors;
    for (const TensorRef& input : group.inputs) tensors.push_back(without_memory(input));
    return kernels::evaluate_steps(group.expression, tensors).back().strides() ==
           at::IntArrayRef(ref.strides);
  }

  void replace(Edit& edit, TaskId root, const Group& group, std::vector<std::string>& sites) {
    const c10::OperatorHandle& op = kernel_.op;
    // Elsewhere the layout of what follows may change with it.
    if (trains_ && !is_laid_out_as(first_result(program_.task(root)), group)) return;
    TensorRefList inputs;
    for (const TensorRef& ref : group.inputs) inputs.refs.emplace_back(ref);
    const std::vector<Operand> arguments = {inputs, c10::IValue(to_string(group.expression))};
    const std::vector<Operand> results = {TensorRefList{.refs = {first_result(program_.task(root))}}};
    std::vector<std::vector<Task>> candidates = {{edit.make_task(root, op, arguments, results)}, {}};
    std::string names;
    for (const TaskId member : group.members) {
      candidates[1].push_back(program_.task(member));
      names += (names.empty() ? "" : ", ") + task_name(program_, member);
    }
    if (chooser_.faster_of(edit.buffers(), candidates) != 0) return;
    chooser_.took(candidates[0], candidates[1]);
    for (const TaskId member : group.members) {
      if (member != root) edit.drop(member);
    }
    edit.replace(root, op, arguments, results);
    sites.push_back(names);
  }

  const Program& program_;
  const PointwiseKernel& kernel_;
  Uses uses_;
  std::vector<std::size_t> depth_;
  bool trains_;
  Chooser chooser_;
  std::map<TaskId, Group> groups_;  // by the task whose result each makes
};

}  // namespace

Rewritten fuse_pointwise(const Program& program, const RewriteContext& context,
                         const PointwiseKernel& kernel) {
  return Fuse(program, context, kernel).run();
}

}  // namespace nimble
