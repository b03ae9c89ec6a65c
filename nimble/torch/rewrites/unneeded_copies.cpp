// A copy that only moves data is not made where those who read it can read what was copied, as it lies.
//
//   %0 = clone(input0[:, :4])              %1 = mul(input0[:, :4])
//   %1 = mul(%0)                     ──▶   %3 = mm(input1 transposed, %1)
//   %2 = clone(input1 transposed)
//   %3 = mm(%2, %1)
//
// Nobody may change the one or the other afterwards, and results stay laid out as they were. Copies of
// weights are made once and left alone.

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/slices.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/rename.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

struct Copy {
  TensorRef from, to;
};

// The task does nothing but copy a tensor to memory of its own.
std::optional<Copy> copy_of(const Program& program, TaskId id, const Uses& uses) {
  const Task& task = program.task(id);
  const bool clones = is_call_of(task, "aten::clone") && task.op.operator_name().overload_name.empty();
  if (!clones && !is_call_of(task, "aten::copy_")) return {};
  const TensorRef& to = first_result(task);
  const TensorRef* from = tensor_argument(task, clones ? 0 : 1);
  if (!from || uses.maker(to) != id || !uses.is_private(to.buffer) || from->buffer == to.buffer) return {};
  const bool same_values = from->sizes == to.sizes && from->dtype == to.dtype && !from->conjugate &&
                           !from->negative && !to.conjugate && !to.negative;
  const bool same_device = program.buffer(from->buffer).device == program.buffer(to.buffer).device;
  return same_values && same_device && to.numel() > 0 ? std::optional(Copy{*from, to}) : std::nullopt;
}

bool is_matrix_product(const Task& task) {
  for (const char* name : {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}) {
    if (is_call_of(task, name) && task.op.operator_name().overload_name.empty()) return true;
  }
  return false;
}

// Libraries take matrices whose rows or columns lie in one piece each, and copy others.
bool is_matrix(const TensorRef& ref) {
  const std::size_t rank = ref.sizes.size();
  if (rank < 2) return false;
  const auto lies_in_pieces = [&](std::size_t along, std::size_t across) {
    return ref.strides[along] == 1 && ref.strides[across] >= std::max<std::int64_t>(ref.sizes[along], 1);
  };
  return lies_in_pieces(rank - 1, rank - 2) || lies_in_pieces(rank - 2, rank - 1);
}

// Whether the task can read `from` in the place of its copy without one of its own, and gives its results in
// the same layout.
bool can_read(const Task& task, const Copy& copy) {
  if (is_matrix_product(task)) return is_matrix(copy.from);
  return reads_slices(task) && is_rows(copy.from) && same_order(copy.from, copy.to);
}

class Unneeded {
 public:
  Unneeded(const Program& program, const RewriteContext& context)
      : program_(program), uses_(program), edit_(program), chooser_(context) {}

  Rewritten run() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      const TaskId id{i};
      const auto copy = copy_of(program_, id, uses_);
      if (copy && is_unneeded(id, *copy)) drop_if_faster(id, *copy);
    }
    for (auto& [id, task] : changed_) {
      edit_.replace(id, task.op, std::move(task.arguments), std::move(task.results));
    }
    Rewritten result{.program = {}, .sites = std::move(sites_), .gained = chooser_.gained()};
    result.program = std::move(edit_).finish();
    return result;
  }

 private:
  // A copy_ counts as one who reads what it fills.
  std::vector<TaskId> readers_of(TaskId id, const Copy& copy) const {
    std::vector<TaskId> readers;
    std::ranges::copy_if(uses_.readers(copy.to.buffer), std::back_inserter(readers),
                         [&](TaskId reader) { return reader != id; });
    return readers;
  }

  bool is_unneeded(TaskId id, const Copy& copy) const {
    const auto maker = uses_.maker(copy.from);
    if (uses_.is_weight(copy.from) || (maker && edit_.touches(*maker))) return false;
    const auto readers = readers_of(id, copy);
    return !readers.empty() && std::ranges::all_of(readers, [&](TaskId reader) {
      const Task& task = program_.task(reader);
      const bool reads_whole = std::ranges::all_of(
          task.reads, [&](const TensorRef& ref) { return ref.buffer != copy.to.buffer || ref == copy.to; });
      const bool stays_until_then = std::ranges::none_of(
          uses_.writers(copy.from.buffer), [&](TaskId writer) { return id < writer && writer <= reader; });
      return reads_whole && stays_until_then && can_read(task, copy);
    });
  }

  void drop_if_faster(TaskId id, const Copy& copy) {
    const auto readers = readers_of(id, copy);
    std::vector<std::vector<Task>> ways(2);  // without the copy, and with it
    ways[1].push_back(program_.task(id));
    for (const TaskId reader : readers) {
      const auto changed = changed_.find(reader);
      Task task = changed == changed_.end() ? program_.task(reader) : changed->second;
      ways[1].push_back(task);
      change_refs(task, [&](TensorRef& ref) { ref = ref.buffer == copy.to.buffer ? copy.from : ref; });
      ways[0].push_back(edit_.make_task(reader, task.op, std::move(task.arguments), std::move(task.results)));
    }
    if (chooser_.faster_of(edit_.buffers(), ways) != 0) return;
    chooser_.took(ways[0], ways[1]);
    for (std::size_t r = 0; r < readers.size(); ++r) {
      changed_.insert_or_assign(readers[r], std::move(ways[0][r]));
    }
    edit_.drop(id);
    sites_.push_back(task_name(program_, id));
  }

  const Program& program_;
  Uses uses_;
  Edit edit_;
  Chooser chooser_;
  std::map<TaskId, Task> changed_;  // readers, as they read from now on
  std::vector<std::string> sites_;
};

Rewritten apply(Program program, const RewriteContext& context) { return Unneeded(program, context).run(); }

}  // namespace

const Rewrite kUnneededCopies{.name = "unneeded_copies",
                              .summary = "what was copied only to lie otherwise is read where it is",
                              .apply = apply};

}  // namespace nimble
