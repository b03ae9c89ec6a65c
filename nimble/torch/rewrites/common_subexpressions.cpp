// What is computed twice from the same values is computed once.
//
//   %1 = relu(input0)                      %1 = relu(input0)
//   %2 = relu(input0)                ──▶   %3 = add(%1, %1)
//   %3 = add(%1, %2)

#include <unordered_map>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/rename.h"
#include "nimble/torch/rewrites/uses.h"
#include "nimble/torch/same_value.h"

namespace nimble {
namespace {

// Looking at it gives the same values whenever it is looked at.
bool never_changes(const Program& program, const Uses& uses, BufferId buffer) {
  const std::size_t writers = uses.writers(buffer).size();
  return program.buffer(buffer).kind == BufferKind::kInternal ? writers == 1 : writers == 0;
}

// The task makes one tensor from others that never change, and nothing else.
bool is_function(const Program& program, const Uses& uses, const Task& task) {
  if (task.draw || !only_computes(task.op) || task.results.size() != 1 || task.writes.size() != 1) {
    return false;
  }
  const auto* result = std::get_if<TensorRef>(&task.results[0]);
  if (!result || !(task.writes[0] == *result) || !never_changes(program, uses, result->buffer)) return false;
  if (program.buffer(result->buffer).kind != BufferKind::kInternal) return false;
  for (const TensorRef& ref : task.reads) {
    if (!never_changes(program, uses, ref.buffer)) return false;
  }
  return true;
}

bool same_operand(const Operand& a, const Operand& b) {
  if (a.index() != b.index()) return false;
  if (const auto* value = std::get_if<c10::IValue>(&a)) return same_value(*value, std::get<c10::IValue>(b));
  if (const auto* ref = std::get_if<TensorRef>(&a)) return *ref == std::get<TensorRef>(b);
  return std::get<TensorRefList>(a).refs == std::get<TensorRefList>(b).refs;
}

bool same_call(const Task& a, const Task& b) {
  return a.op.operator_name() == b.op.operator_name() && a.twins == b.twins && a.part == b.part &&
         a.state == b.state &&
         std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end(),
                    same_operand);
}

Rewritten apply(Program program, const RewriteContext&) {
  const Uses uses(program);
  Rewritten result{.program = program};
  std::vector<Task> kept;
  std::vector<std::size_t> origin;  // by kept task: which it was
  Names names;
  std::unordered_multimap<std::string, std::size_t> seen;  // by operator: functions among the kept tasks
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    Task task = program.tasks[i];
    const bool function = is_function(program, uses, task);
    rename(task, names);
    if (function) {
      const auto [begin, end] = seen.equal_range(task.op.operator_name().name);
      const auto twin = std::find_if(begin, end, [&](const auto& known) {
        const Task& earlier = kept[known.second];
        // Two results that the caller gets are two tensors.
        const bool both_returned = program.buffer(first_result(task).buffer).returned &&
                                   result.program.buffer(first_result(earlier).buffer).returned;
        return same_call(earlier, task) && !both_returned;
      });
      if (twin != end) {
        const BufferId there = first_result(kept[twin->second]).buffer;
        const BufferId here = first_result(task).buffer;
        names.insert_or_assign(here, there);
        result.program.buffers[there.index()].returned |= program.buffer(here).returned;
        result.sites.push_back(task_name(program, TaskId{i}) + " is " +
                               task_name(program, TaskId{static_cast<std::uint32_t>(origin[twin->second])}));
        continue;
      }
      seen.emplace(task.op.operator_name().name, kept.size());
    }
    origin.push_back(i);
    kept.push_back(std::move(task));
  }
  result.program.tasks = std::move(kept);
  rename_outputs(result.program, names);
  return result;
}

}  // namespace

const Rewrite kCommonSubexpressions{.name = "common_subexpressions",
                                    .summary = "what is computed twice from the same values is computed once",
                                    .exact = true,
                                    .apply = apply};

}  // namespace nimble
