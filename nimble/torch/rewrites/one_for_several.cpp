#include "nimble/torch/rewrites/one_for_several.h"

namespace nimble {

std::optional<std::string> replace_if_faster(OneForSeveral one, const Program& program,
                                             std::span<const Buffer> buffers, Edit& edit, Chooser& chooser) {
  std::vector<std::vector<Task>> candidates;
  for (const auto& arguments : one.ways) {
    candidates.push_back({edit.make_task(one.at, one.op, arguments, one.results)});
  }
  std::string names;
  auto& as_they_are = candidates.emplace_back();
  for (const TaskId member : one.members) {
    as_they_are.push_back(program.task(member));
    names += (names.empty() ? "" : ", ") + task_name(program, member);
  }
  const std::size_t best = chooser.faster_of(buffers, candidates);
  if (best == one.ways.size()) return {};
  chooser.took(candidates[best], as_they_are);
  for (const TaskId member : one.members) {
    if (member != one.at) edit.drop(member);
  }
  edit.replace(one.at, one.op, std::move(one.ways[best]), std::move(one.results));
  return names;
}

}  // namespace nimble
