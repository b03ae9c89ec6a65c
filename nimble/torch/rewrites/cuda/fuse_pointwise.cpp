// Pointwise tasks that feed one another become one generated kernel.
//
//   %1 = mul(%0, w)
//   %2 = add(%1, b)                  ──▶   %3 = nimble::pointwise(%0, w, b)
//   %3 = relu(%2)
//
// A task is taken in by its only reader, where it makes what that reader waits for longest: work that could
// have been done meanwhile, beside something slower, stays where it is. Nothing that is read by several is
// computed twice, and branches are never glued side by side.

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "nimble/kernels/expression.h"
#include "nimble/kernels/kernel_source.h"
#include "nimble/kernels/pointwise_source.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/sites.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"

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
  Fuse(const Program& program, const RewriteContext& context)
      : program_(program), uses_(program), depth_(depths(program)), chooser_(context) {}

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
    return result;
  }

 private:
  // The task, and the groups of those that feed it and nobody else.
  std::optional<Group> group_of(TaskId id) {
    const Task& task = program_.task(id);
    if (!is_pointwise(task)) return {};
    Group group{.expression = {}, .inputs = {}, .members = {}};
    Step last{function_of(task), {}};
    std::vector<TaskId> taken;
    for (std::size_t a = 0; a < task.arguments.size(); ++a) {
      const TensorRef* ref = tensor_argument(task, a);
      if (!ref) {
        last.arguments.emplace_back(value_argument(task, a));
      } else if (const auto number = known_number(*ref)) {
        last.arguments.emplace_back(*number);
        last.function = last.function.substr(0, last.function.find('.')) + ".Scalar";
      } else if (const auto feeder = feeder_of(*ref, id)) {
        last.arguments.emplace_back(append(group, groups_.at(*feeder)));
        taken.push_back(*feeder);
      } else {
        last.arguments.emplace_back(input_of(group, *ref));
      }
    }
    if (!kernels::has_kernel(last) || group.inputs.size() > kMostInputs ||
        group.expression.steps.size() >= kMostSteps) {
      return taken.empty() ? std::nullopt : alone(id);
    }
    group.expression.steps.push_back(std::move(last));
    group.expression.results = {kernels::step(group.expression.steps.size() - 1)};
    group.members.push_back(id);
    for (const TaskId feeder : taken) groups_.erase(feeder);
    return group;
  }

  // Where taking others in would make too much of it.
  std::optional<Group> alone(TaskId id) const {
    const Task& task = program_.task(id);
    Group group{.expression = {}, .inputs = {}, .members = {id}};
    Step only{function_of(task), {}};
    for (std::size_t a = 0; a < task.arguments.size(); ++a) {
      if (const TensorRef* ref = tensor_argument(task, a)) {
        if (known_number(*ref)) return {};
        only.arguments.emplace_back(input_of(group, *ref));
      } else {
        only.arguments.emplace_back(value_argument(task, a));
      }
    }
    if (!kernels::has_kernel(only)) return {};
    group.expression.steps = {std::move(only)};
    group.expression.results = {kernels::step(0)};
    return group;
  }

  static std::string function_of(const Task& task) {
    const auto& [name, overload] = task.op.operator_name();
    const std::string bare = name.starts_with("aten::") ? name.substr(6) : "";
    return overload.empty() ? bare : bare + "." + overload;
  }

  bool is_pointwise(const Task& task) const {
    if (task.draw || task.results.size() != 1 || !std::holds_alternative<TensorRef>(task.results[0]))
      return false;
    const TensorRef& result = first_result(task);
    if (task.writes.size() != 1 || !(task.writes[0] == result) || result.numel() == 0) return false;
    if (program_.buffer(result.buffer).kind != BufferKind::kInternal) return false;
    for (const Operand& operand : task.arguments) {
      if (std::holds_alternative<TensorRefList>(operand)) return false;
      if (const auto* value = std::get_if<c10::IValue>(&operand)) {
        const bool plain =
            value->isNone() || value->isBool() || value->isInt() || value->isDouble() || value->isString();
        if (!plain) return false;
      }
    }
    for (const TensorRef& ref : task.reads) {
      if (known_number(ref) && ref.sizes.empty() && result.dtype == first_tensor(task).dtype) continue;
      const bool readable = !ref.conjugate && !ref.negative && !kernels::device_type(ref.dtype).empty() &&
                            program_.buffer(ref.buffer).device == program_.buffer(result.buffer).device &&
                            never_rewritten(program_, uses_, ref);
      if (!readable) return false;
    }
    return !task.reads.empty() && std::holds_alternative<TensorRef>(task.arguments[0]) &&
           !known_number(first_tensor(task));
  }

  static const TensorRef& first_tensor(const Task& task) { return std::get<TensorRef>(task.arguments[0]); }

  // A number of the user's code, which PyTorch wraps in a tensor on the host.
  std::optional<c10::IValue> known_number(const TensorRef& ref) const {
    const Buffer& buffer = program_.buffer(ref.buffer);
    if (buffer.kind != BufferKind::kConstant || !ref.sizes.empty() || !buffer.device.is_cpu() ||
        program_.device().is_cpu()) {
      return {};
    }
    const c10::Scalar number = materialize(ref, buffer.outside.storage()).item();
    return number.isFloatingPoint() ? c10::IValue(number.toDouble())
           : number.isBoolean()     ? c10::IValue(number.toBool())
                                    : c10::IValue(number.toLong());
  }

  // The group that makes `ref` for `reader` alone, and that it waits for longest.
  std::optional<TaskId> feeder_of(const TensorRef& ref, TaskId reader) const {
    const auto maker = uses_.maker(ref);
    if (!maker || !groups_.contains(*maker) || uses_.only_reader(*maker) != reader) return {};
    const Task& task = program_.task(reader);
    if (ref.sizes != first_result(task).sizes) return {};  // it would be computed again for each copy
    for (const TensorRef& other : task.reads) {
      for (const TaskId writer : uses_.writers(other.buffer)) {
        if (depth_[writer.index()] > depth_[maker->index()]) return {};
      }
    }
    const Task& feeder = program_.task(*maker);
    if (feeder.part != task.part || feeder.step != task.step || !(feeder.state == task.state)) return {};
    return maker;
  }

  static Value input_of(Group& group, const TensorRef& ref) {
    const auto known = std::find(group.inputs.begin(), group.inputs.end(), ref);
    const auto index = static_cast<std::size_t>(known - group.inputs.begin());
    if (known == group.inputs.end()) {
      group.inputs.push_back(ref);
      group.expression.inputs = group.inputs.size();
    }
    return kernels::input(index);
  }

  // Puts the steps of `from` behind those of `group`; the value that they make.
  static Value append(Group& group, const Group& from) {
    const std::size_t first = group.expression.steps.size();
    const auto translated = [&](const Value& value) {
      return value.kind == Value::Kind::kStep ? kernels::step(first + value.index)
                                              : input_of(group, from.inputs[value.index]);
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

  void replace(Edit& edit, TaskId root, const Group& group, std::vector<std::string>& sites) {
    static const auto op = find_operator("nimble::pointwise");
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
    for (const TaskId member : group.members) {
      if (member != root) edit.drop(member);
    }
    edit.replace(root, op, arguments, results);
    sites.push_back(names);
  }

  const Program& program_;
  Uses uses_;
  std::vector<std::size_t> depth_;
  Chooser chooser_;
  std::map<TaskId, Group> groups_;  // by the task whose result each makes
};

Rewritten apply(Program program, const RewriteContext& context) { return Fuse(program, context).run(); }

}  // namespace

const Rewrite kFusePointwise{.name = "fuse_pointwise",
                             .summary = "pointwise tasks that feed one another become one generated kernel",
                             .on_cpu = false,
                             .apply = apply};

}  // namespace nimble
