#include "nimble/engine/same_program.h"

#include <ATen/ATen.h>

#include <unordered_map>

#include "nimble/torch/outside_state.h"
#include "nimble/torch/same_value.h"

namespace nimble {
namespace {

// Pairs the buffers of two programs off as they turn up: their numbers may differ, what they are may not.
class Pairing {
 public:
  Pairing(const Program& first, const Program& second) : first_(first), second_(second) {}

  bool same(const TensorRef& a, const TensorRef& b) {
    TensorRef renamed = b;
    renamed.buffer = a.buffer;
    return a == renamed && same(a.buffer, b.buffer);
  }
  bool same(const Operand& a, const Operand& b) {
    if (a.index() != b.index()) return false;
    if (const auto* value = std::get_if<c10::IValue>(&a)) return same_value(*value, std::get<c10::IValue>(b));
    if (const auto* ref = std::get_if<TensorRef>(&a)) return same(*ref, std::get<TensorRef>(b));
    const auto& left = std::get<TensorRefList>(a).refs;
    const auto& right = std::get<TensorRefList>(b).refs;
    return std::equal(
        left.begin(), left.end(), right.begin(), right.end(),
        [&](const auto& x, const auto& y) { return x.has_value() == y.has_value() && (!x || same(*x, *y)); });
  }
  bool same(const std::vector<Operand>& a, const std::vector<Operand>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](const auto& x, const auto& y) { return same(x, y); });
  }

 private:
  bool same(BufferId a, BufferId b) {
    if (const auto known = pairs_.find(a); known != pairs_.end()) return known->second == b;
    pairs_.emplace(a, b);
    const Buffer& left = first_.buffer(a);
    const Buffer& right = second_.buffer(b);
    if (left.kind != right.kind || left.bytes != right.bytes || left.device != right.device) return false;
    if (left.kind == BufferKind::kExternal) return left.address == right.address;
    if (left.kind == BufferKind::kConstant) return same_bits(left.outside, right.outside);
    return true;
  }

  const Program& first_;
  const Program& second_;
  std::unordered_map<BufferId, BufferId> pairs_;
};

std::string describe_task(const Program& program, std::uint32_t index) {
  std::string text = task_name(program, TaskId{index});
  if (const auto& where = program.tasks[index].where; !where.empty()) text += " (" + where + ")";
  return text;
}

}  // namespace

std::optional<Difference> first_difference(const Program& first, const Program& second) {
  Pairing pairing(first, second);
  const auto tasks = std::min(first.tasks.size(), second.tasks.size());
  for (std::uint32_t i = 0; i < tasks; ++i) {
    const Task& a = first.tasks[i];
    const Task& b = second.tasks[i];
    const auto differs = [&](std::string text) { return Difference{std::move(text), i}; };
    if (!(a.op.operator_name() == b.op.operator_name()))
      return differs(describe_task(first, i) + " was " + describe_task(second, i) + " the next time");
    if (!pairing.same(a.arguments, b.arguments))
      return differs(describe_task(second, i) + " was given other arguments the next time");
    if (!pairing.same(a.results, b.results))
      return differs(describe_task(second, i) + " gave results of another form the next time");
    if (a.draw && a.draw->position != b.draw->position)
      return differs(describe_task(second, i) + " drew other random numbers the next time");
  }
  if (first.tasks.size() > tasks)
    return Difference{describe_task(first, tasks) + " did not run the next time"};
  if (second.tasks.size() > tasks)
    return Difference{describe_task(second, tasks) + " ran only the next time", tasks};
  if (first.outputs.size() != second.outputs.size())
    return Difference{"another number of results the next time"};
  for (std::size_t i = 0; i < first.outputs.size(); ++i) {
    if (!pairing.same(first.outputs[i].ref, second.outputs[i].ref))
      return Difference{"result " + std::to_string(i) + " was something else the next time"};
  }
  return std::nullopt;
}

}  // namespace nimble
