// What an optimizer does with lists of tensors, call by call, becomes one generated kernel for all of it.
//
//   _foreach_mul_(m, 0.9)
//   _foreach_add_(m, g, 1)           ──▶   nimble::foreach_pointwise([m, p], [g])
//   _foreach_add_(p, m, -0.1)
//
// Each call would read and write all tensors once more. Lists that are made in between and that nobody else
// looks at are never written at all.
//
// Each step computes as ATen's kernel for lists does. Whether that rounds a product before a sum is the
// choice of the compiler that made it, so each kernel is tried beside the calls that it replaces, on numbers
// that are made up, and taken only if no bit differs. Of lists that are too short for that, calls are taken
// which leave no such choice.

#include <algorithm>
#include <set>
#include <string_view>

#include "nimble/kernels/expression.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/foreach_groups.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/same_alone.h"
#include "nimble/torch/rewrites/uses.h"

namespace nimble {
namespace {

using kernels::Value;

// The calls of a group as one expression. Its inputs are the lists `written` and then those of `read`; its
// results go to `written` and to `made`.
struct Fused {
  kernels::Expression expression;
  std::vector<RefList> written, read, made;
};

// What a group does to one list.
struct ListStory {
  RefList list;
  bool is_given = false;                 // it is there before the group begins
  bool is_changed = false;               // in place
  std::optional<std::size_t> step = {};  // the last that wrote it
};

class Fusion {
 public:
  Fusion(const ForeachGroup& group, const Uses& uses) : group_(group), uses_(uses) {}

  Fused run() && {
    for (const ForeachCall& call : group_.calls) read_lists(call);
    Fused fused;
    collect(fused);
    number_inputs(fused);
    for (std::size_t c = 0; c < group_.calls.size(); ++c) fused.expression.steps.push_back(step_of(c));
    for (const auto* lists : {&fused.written, &fused.made}) {
      for (const RefList& list : *lists) fused.expression.results.push_back(kernels::step(*story(list).step));
    }
    fused.expression.inputs = fused.written.size() + fused.read.size();
    return fused;
  }

 private:
  ListStory& story(const RefList& list) {
    const auto known = std::ranges::find(stories_, list, &ListStory::list);
    return known != stories_.end() ? *known : stories_.emplace_back(ListStory{.list = list});
  }

  void read_lists(const ForeachCall& call) {
    for (const RefList* list : lists_of(call)) {
      const bool is_made_here = list == &call.result && !call.in_place;
      const bool is_new = std::ranges::find(stories_, *list, &ListStory::list) == stories_.end();
      ListStory& known = story(*list);
      if (is_new) known.is_given = !is_made_here;
      if (list == &call.result) known.is_changed = true;
    }
  }

  // Nobody but the group ever sees these tensors.
  bool vanishes(const RefList& list) const {
    const auto is_member = [&](TaskId task) { return std::ranges::binary_search(group_.members, task); };
    return std::ranges::all_of(list, [&](const TensorRef& ref) {
      return uses_.is_private(ref.buffer) && std::ranges::all_of(uses_.readers(ref.buffer), is_member) &&
             std::ranges::all_of(uses_.writers(ref.buffer), is_member);
    });
  }

  void collect(Fused& fused) const {
    for (const ListStory& story : stories_) {
      if (story.is_given) {
        (story.is_changed ? fused.written : fused.read).push_back(story.list);
      } else if (!vanishes(story.list)) {
        fused.made.push_back(story.list);
      }
    }
  }

  void number_inputs(const Fused& fused) {
    for (const auto* lists : {&fused.written, &fused.read}) {
      for (const RefList& list : *lists) inputs_.push_back(list);
    }
  }

  // What a list holds at this point of the expression.
  Value value_of(const RefList& list) {
    const ListStory& known = story(list);
    if (known.step) return kernels::step(*known.step);
    return kernels::input(static_cast<std::size_t>(std::ranges::find(inputs_, list) - inputs_.begin()));
  }

  kernels::Step step_of(std::size_t number) {
    const ForeachCall& call = group_.calls[number];
    kernels::Step step{call.function, {}};
    for (const auto& argument : call.arguments) {
      if (const auto* list = std::get_if<RefList>(&argument)) {
        step.arguments.emplace_back(value_of(*list));
      } else {
        step.arguments.emplace_back(std::get<c10::IValue>(argument));
      }
    }
    story(call.result).step = number;
    return step;
  }

  const ForeachGroup& group_;
  const Uses& uses_;
  std::vector<ListStory> stories_;
  std::vector<RefList> inputs_;
};

// Whatever compiler made its kernel.
bool rounds_once(const ForeachCall& call) {
  static const std::set<std::string_view> kTwice = {"_foreach_div.Scalar", "_foreach_lerp.Scalar",
                                                    "_foreach_addcmul.Scalar", "_foreach_addcdiv.Scalar"};
  const bool scales = call.function == "_foreach_add.List" || call.function == "_foreach_sub.List";
  if (scales) return std::get<c10::IValue>(call.arguments.at(2)).toScalar().toDouble() == 1;
  return !kTwice.contains(call.function);
}

// Where a product is rounded before a sum and should not be, or the other way round, one in three results
// differs.
bool trial_can_tell(const ForeachGroup& group) {
  constexpr std::int64_t kEnough = 4096;
  std::int64_t numbers = 0;
  for (const TensorRef& ref : group.calls[0].result) numbers += ref.numel();
  return numbers >= kEnough || std::ranges::all_of(group.calls, rounds_once);
}

TensorRefList flat(const std::vector<RefList>& lists) {
  TensorRefList all;
  for (const RefList& list : lists) all.refs.insert(all.refs.end(), list.begin(), list.end());
  return all;
}

Rewritten apply(Program program, const RewriteContext& context) {
  static const auto op = find_operator("nimble::foreach_pointwise");
  const Uses uses(program);
  Chooser chooser(context);
  Edit edit(program);
  Rewritten result{.program = {}};
  for (const ForeachGroup& group : foreach_groups(program)) {
    if (!trial_can_tell(group)) continue;
    const Fused fused = Fusion(group, uses).run();
    if (fused.expression.results.empty()) continue;  // nobody ever looks at it
    const auto count = static_cast<std::int64_t>(group.calls[0].result.size());
    const std::vector<Operand> arguments = {flat(fused.written), flat(fused.read),
                                            c10::IValue(to_string(fused.expression)), c10::IValue(count)};
    const std::vector<Operand> results = {flat(fused.made)};
    const TaskId last = group.members.back();
    std::vector<std::vector<Task>> candidates = {{edit.make_task(last, op, arguments, results)}, {}};
    std::string names;
    for (const TaskId member : group.members) {
      candidates[1].push_back(program.task(member));
      names += (names.empty() ? "" : ", ") + task_name(program, member);
    }
    if (chooser.faster_of(without_outside(program.buffers), candidates) != 0) continue;
    // In a run that is thrown away nothing is tried either.
    if (!context.consider && !same_alone(candidates[1], candidates[0][0], program.buffers)) continue;
    chooser.took(candidates[0], candidates[1]);
    for (const TaskId member : group.members) {
      if (member != last) edit.drop(member);
    }
    edit.replace(last, op, arguments, results);
    result.sites.push_back(names);
  }
  result.program = std::move(edit).finish();
  result.gained = chooser.gained();
  return result;
}

}  // namespace

const Rewrite kFuseForeach{
    .name = "fuse_foreach",
    .summary = "what an optimizer does with lists of tensors, call by call, becomes one generated kernel",
    .on_cpu = false,
    .for_training = true,
    .exact = true,
    .apply = apply};

}  // namespace nimble
