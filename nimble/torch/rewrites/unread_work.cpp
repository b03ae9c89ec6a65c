// Work that nobody looks at is left out: tasks whose results are never read, and whatever is overwritten as a
// whole before anybody reads it.
//
//   %0 = exp(input0)                       %2 = copy_(%2, input0)
//   %1 = zeros()                     ──▶   %3 = add(%2)
//   %2 = copy(%1, input0)
//   %3 = add(%2)
//
// Other rewrites ask who is the only reader of a result. One whose own result nobody reads shall not count,
// so this goes before them; they take out themselves what they make superfluous.

#include <algorithm>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

bool is_one_of(const Task& task, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, task.op.operator_name().name) != names.end();
}

bool only_makes_results(const Task& task) {
  return only_computes(task.op) && !task.draw && !task.writes.empty();
}

// The task fills all of this argument, and does not look at what was there before.
bool only_fills(const Task& task, std::size_t argument) {
  if (is_one_of(task, {"aten::copy_", "aten::fill_", "aten::zero_"})) return argument == 0;
  const bool fills_out = task.op.hasTag(at::Tag::pointwise) ||
                         task.op.operator_name().name.starts_with("nimble::") ||
                         is_one_of(task, {"aten::mm", "aten::bmm", "aten::addmm", "aten::cat"});
  return fills_out && task.op.schema().arguments()[argument].name() == "out";
}

// Out of place these give a copy of their first tensor with other values, so nobody needs the values of that
// one. In place, on memory that is not filled yet, they do the same without it.
bool gives_other_values(const Task& task) {
  return is_one_of(task, {"aten::copy", "aten::fill", "aten::zero"}) &&
         task.op.operator_name().overload_name != "out";
}
c10::OperatorHandle in_place(const c10::OperatorHandle& op) {
  const auto& [name, overload] = op.operator_name();
  return find_operator((name + '_').c_str(), overload.c_str());
}

// What will still be read, while a program is gone through from its last task to its first.
class Needed {
 public:
  explicit Needed(const Program& program) : program_(program), looks_(program.buffers.size()) {
    for (std::uint32_t b = 0; b < looks_.size(); ++b) {
      const auto bytes = static_cast<std::int64_t>(program.buffers[b].bytes);
      if (!program.buffers[b].returned) continue;
      looks_[b].push_back({{.buffer = BufferId{b}, .sizes = {bytes}, .strides = {1}, .dtype = at::kByte}});
    }
  }

  bool any_of(const Task& task) const {
    return !only_makes_results(task) ||
           std::ranges::any_of(task.writes, [&](const TensorRef& ref) { return is_needed(ref); });
  }

  // Before this task runs, what it fills is not needed, and what it reads is.
  void go_before(const Task& task) {
    std::vector<TensorRef> filled, read;
    for (std::size_t i = 0; i < task.arguments.size(); ++i) {
      auto& refs = only_fills(task, i) ? filled : read;
      for_each_ref(task.arguments[i], [&](const TensorRef& ref) { refs.push_back(ref); });
    }
    for (const TensorRef& ref : filled) {
      auto& looks = looks_[ref.buffer.index()];
      std::erase_if(looks, [&](const Look& look) { return covers(ref, look.at); });
      for (Look& look : looks) look.filled.push_back(ref);
    }
    for (const TensorRef& ref : read) looks_[ref.buffer.index()].push_back({ref});
  }

 private:
  struct Look {
    TensorRef at;
    std::vector<TensorRef> filled = {};  // between here and there
  };

  bool is_needed(const TensorRef& written) const {
    if (program_.buffer(written.buffer).kind != BufferKind::kInternal) return true;
    const auto& looks = looks_[written.buffer.index()];
    if (written.numel() == 0) return !looks.empty();
    return std::ranges::any_of(looks, [&](const Look& look) {
      return may_overlap(written, look.at) &&
             std::ranges::none_of(look.filled, [&](const TensorRef& ref) { return covers(ref, written); });
    });
  }

  const Program& program_;
  std::vector<std::vector<Look>> looks_;  // by buffer
};

Rewritten apply(Program program, const RewriteContext&) {
  Rewritten result{.program = program};
  if (program.parts > 1) return result;  // some results are wanted before the last task has run
  Edit edit(program);
  Needed needed(program);
  for (auto i = static_cast<std::uint32_t>(program.tasks.size()); i-- > 0;) {
    const TaskId id{i};
    const Task& task = program.task(id);
    if (!needed.any_of(task)) {
      edit.drop(id);
      result.sites.push_back(task_name(program, id));
    } else if (gives_other_values(task)) {
      std::vector<Operand> arguments = task.arguments;
      arguments[0] = first_result(task);
      needed.go_before(edit.make_task(id, in_place(task.op), arguments, task.results));
      edit.replace(id, in_place(task.op), std::move(arguments), task.results);
      result.sites.push_back(task_name(program, id) + " without what was there before");
    } else {
      needed.go_before(task);
    }
  }
  std::ranges::reverse(result.sites);
  result.program = std::move(edit).finish();
  return result;
}

}  // namespace

const Rewrite kUnreadWork{.name = "unread_work",
                          .summary = "what nobody reads, or is overwritten before, is not computed",
                          .exact = true,
                          .apply = apply};

}  // namespace nimble
