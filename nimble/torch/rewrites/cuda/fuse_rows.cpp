// Layer norms, softmaxes and reductions of rows become one generated kernel with the pointwise tasks around
// them.
//
//   %2 = add(%0, %1)
//   %3 = native_layer_norm(%2, w, b)   ──▶   %2, %3 = nimble::rows(%0, %1, w, b)
//   …  = …(%2)
//
// Rows are read once and stay in registers. What somebody else looks at is written as one more result, here
// the sum that the next residual connection needs. A task joins only where nobody waits longer for it: work
// that could have been done meanwhile, beside something slower, stays where it is.
//
// The program is gone through from its end, so that a reduction finds those that it is made of, as the last
// sum of a cosine similarity does the two norms, and takes them in.

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "nimble/kernels/element_source.h"
#include "nimble/kernels/row_source.h"
#include "nimble/kernels/row_steps.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/sites.h"
#include "nimble/torch/rewrites/cuda/spreading.h"
#include "nimble/torch/rewrites/cuda/task_expression.h"
#include "nimble/torch/rewrites/one_for_several.h"
#include "nimble/torch/rewrites/pointwise_tasks.h"

namespace nimble {
namespace {

using kernels::Expression;
using kernels::Step;

constexpr std::size_t kMostInputs = 12, kMostSteps = 32;

// One kernel for some tasks.
struct Kernel {
  TaskExpression work;
  std::vector<TensorRef> results;
  TaskId at;  // the member in whose place it runs
};

class Fuse {
 public:
  Fuse(const Program& program, const RewriteContext& context)
      : program_(program),
        uses_(program),
        depth_(depths(program)),
        context_(context),
        chooser_(context),
        placement_(program, uses_) {}

  Rewritten run() {
    Edit edit(program_);
    Rewritten result{.program = {}};
    for (auto i = static_cast<std::uint32_t>(program_.tasks.size()); i-- > 0;) {
      if (taken_.contains(TaskId{i}) || !is_over_rows(program_.tasks[i])) continue;
      const Members members = grown(TaskId{i});
      if (is_worth_it(members)) replace(edit, members, result.sites);
    }
    std::reverse(result.sites.begin(), result.sites.end());
    result.program = std::move(edit).finish();
    result.gained = chooser_.gained();
    return result;
  }

 private:
  // The way back through a norm looks at the numbers of each row, and nobody at other further results.
  Results results_of(const Task& task) const {
    const bool are_unread =
        std::all_of(task.results.begin() + 1, task.results.end(), [&](const Operand& other) {
          const auto* ref = std::get_if<TensorRef>(&other);  // none where nobody asked for it
          return !ref || uses_.is_unread(ref->buffer);
        });
    return are_unread ? Results::kFirst : Results::kAll;
  }
  TaskSteps steps_of(const Task& task) const { return nimble::steps_of(program_, task, results_of(task)); }

  bool is_over_rows(const Task& task) const {
    return can_be_step(program_, uses_, task, context_.trains) &&
           std::ranges::any_of(steps_of(task).steps, kernels::is_over_rows);
  }

  // Alone a norm or a softmax is worth another kernel only where that measures faster, and a reduction never.
  bool is_worth_it(const Members& members) const {
    const auto kernel = kernel_of(members);
    if (!kernel) return false;
    const auto& steps = kernel->work.expression.steps;
    const bool is_bare = steps.size() == 1 && kernels::gives_numbers(steps[0]);
    return members.size() > 1 || (context_.chooses() && !is_bare);
  }

  bool may_join(const Members& members, TaskId id) const {
    const Task& task = program_.task(id);
    return !members.contains(id) && !taken_.contains(id) &&
           (makes_one_tensor(program_, uses_, task, context_.trains) || is_over_rows(task)) &&
           belong_together(task, program_.task(*members.begin()));
  }

  // Who made what `ref` looks at, perhaps spread over the elements of a row.
  std::optional<TaskId> maker_of(const TensorRef& ref) const {
    const auto writers = uses_.writers(ref.buffer);
    if (writers.size() != 1 || program_.task(writers[0]).results.empty()) return {};
    const auto* made = std::get_if<TensorRef>(&program_.task(writers[0]).results[0]);
    return made && shape_before_spreading(*made, ref) ? uses_.maker(*made) : std::nullopt;
  }

  // The task with all that can be done in the same kernel.
  Members grown(TaskId over_rows) const {
    Members members = {over_rows};
    while (const auto feeder = next_feeder(members)) members.insert(*feeder);
    while (const auto reader = next_reader(members)) members.insert(*reader);
    return members;
  }

  // A task that makes something the members read.
  std::optional<TaskId> next_feeder(const Members& members) const {
    const auto kernel = kernel_of(members);
    if (!kernel) return {};
    for (const TensorRef& ref : kernel->work.inputs) {
      const auto maker = maker_of(ref);
      if (!maker || !may_join(members, *maker) || uses_.is_weight(ref)) continue;  // those are made once
      Members more = members;
      more.insert(*maker);
      // Nothing else that the kernel waits for comes later; if others want the value too, it is not even
      // begun later.
      std::size_t others = 0;
      for (const TensorRef& other : kernel->work.inputs) {
        if (other.buffer != ref.buffer)
          others = std::max(others, depth_of({&other, 1}, uses_, depth_, kernel->at));
      }
      const bool waits = others > depth_[maker->index()] - (is_seen_outside(uses_, ref, more) ? 1 : 0);
      if (!waits && kernel_of(more)) return maker;
    }
    return {};
  }

  // The one task that reads what the members make last, or a cast of it, which others need not wait for.
  std::optional<TaskId> next_reader(const Members& members) const {
    const auto kernel = kernel_of(members);
    const TaskId last = *members.rbegin();
    if (!kernel) return {};
    const BufferId made = first_result(program_.task(last)).buffer;
    const bool has_one_reader = uses_.readers(made).size() == 1;
    for (const TaskId reader : uses_.readers(made)) {
      const bool is_cast = is_call_of(program_.task(reader), "aten::_to_copy");
      if ((!is_cast && !has_one_reader) || !may_join(members, reader)) continue;
      Members more = members;
      more.insert(reader);
      const auto larger = kernel_of(more);
      if (larger && begins_behind(*larger) <= begins_behind(*kernel)) return reader;
    }
    return {};
  }

  std::size_t begins_behind(const Kernel& kernel) const {
    return depth_of(kernel.work.inputs, uses_, depth_, kernel.at);
  }

  // None where one kernel cannot do all this.
  std::optional<Kernel> kernel_of(const Members& members) const {
    Kernel kernel{.work = {}, .results = {}, .at = *members.begin()};
    for (const TaskId member : members) {
      const Task& task = program_.task(member);
      for (const Made& made : kernel.work.add(program_, task, results_of(task))) {
        const BufferId buffer = made.ref.buffer;
        if (uses_.writers(buffer).size() != 1) return {};  // who of the members sees which of its values?
        if (program_.buffer(buffer).kind != BufferKind::kInternal) return {};
        if (!is_seen_outside(uses_, made.ref, members)) continue;
        kernel.work.expression.results.push_back(kernels::step(made.step));
        kernel.results.push_back(made.ref);
      }
    }
    const Expression& expression = kernel.work.expression;
    const bool fits =
        !kernel.results.empty() && expression.inputs <= kMostInputs && expression.steps.size() <= kMostSteps;
    const auto at = placement_.find(members, kernel.work.inputs, kernel.results);
    if (!fits || !at || !std::ranges::all_of(expression.steps, can_be_done)) return {};
    kernel.at = *at;
    std::vector<at::Tensor> tensors;
    for (const TensorRef& ref : kernel.work.inputs) tensors.push_back(without_memory(ref));
    const auto shapes = shapes_of(expression, tensors);
    if (shapes.empty()) return {};
    const bool are_as_recorded = std::ranges::all_of(kernel.work.made, [&](const Made& made) {
      const at::Tensor& shape = shapes[made.step];
      return shape.sizes() == at::IntArrayRef(made.ref.sizes) && shape.scalar_type() == made.ref.dtype &&
             // Elsewhere the layout of what follows may change with it.
             (!context_.trains || shape.strides() == at::IntArrayRef(made.ref.strides));
    });
    if (!are_as_recorded || !kernels::has_row_kernel(expression, tensors, shapes)) return {};
    return kernel;
  }

  // None where the steps do not fit together: a number that a task spreads over a shape of which nothing else
  // in it tells stays one number here, and who looks at that shape finds too few.
  static std::vector<at::Tensor> shapes_of(const Expression& expression, at::TensorList tensors) {
    try {
      return kernels::evaluate_steps(expression, tensors);
    } catch (const c10::Error&) {
      return {};
    }
  }
  static bool can_be_done(const Step& step) {
    return kernels::is_over_rows(step) || kernels::is_view(step) || kernels::has_kernel(step);
  }

  void replace(Edit& edit, const Members& members, std::vector<std::string>& sites) {
    static const auto op = find_operator("nimble::rows");
    const auto kernel = kernel_of(members);
    if (!kernel) return;
    TensorRefList inputs, results;
    for (const TensorRef& ref : kernel->work.inputs) inputs.refs.emplace_back(ref);
    for (const TensorRef& ref : kernel->results) results.refs.emplace_back(ref);
    constexpr std::int64_t kDivisions = 2;
    OneForSeveral one{.members = members, .at = kernel->at, .op = op, .ways = {}, .results = {results}};
    for (std::int64_t n = 0; n < (context_.chooses() ? kDivisions : 1); ++n) {
      one.ways.push_back({inputs, c10::IValue(to_string(kernel->work.expression)), c10::IValue(n)});
    }
    const auto names = replace_if_faster(std::move(one), program_, edit.buffers(), edit, chooser_);
    if (!names) return;
    taken_.insert(members.begin(), members.end());
    placement_.move(members, kernel->at);
    sites.push_back(*names);
  }

  const Program& program_;
  Uses uses_;
  std::vector<std::size_t> depth_;
  const RewriteContext& context_;
  Chooser chooser_;
  Members taken_;  // by kernels that are there already
  Placement placement_;
};

Rewritten apply(Program program, const RewriteContext& context) {
  // Sums are rounded in another order than eager's.
  if (context.trains && !context.tolerant) return {.program = std::move(program)};
  return Fuse(program, context).run();
}

}  // namespace

const Rewrite kFuseRows{
    .name = "fuse_rows",
    .summary =
        "layer norms, softmaxes and reductions of rows become one kernel with the pointwise work around "
        "them",
    .on_cpu = false,
    .for_training = true,
    .apply = apply};

}  // namespace nimble
