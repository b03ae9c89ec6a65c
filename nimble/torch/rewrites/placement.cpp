#include "nimble/torch/rewrites/placement.h"

#include <algorithm>

namespace nimble {

Placement::Placement(const Program& program, const Uses& uses) : uses_(uses) {
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) place_.push_back(TaskId{i});
}

std::optional<TaskId> Placement::find(const Members& members, std::span<const TensorRef> inputs,
                                      std::span<const TensorRef> results) const {
  const auto fits = [&](TaskId at) {
    return std::ranges::all_of(results, [&](const TensorRef& ref) { return is_in_time(ref, members, at); }) &&
           std::ranges::all_of(inputs, [&](const TensorRef& ref) { return is_the_same(ref, members, at); });
  };
  const auto last = std::find_if(members.rbegin(), members.rend(), fits);
  return last == members.rend() ? std::nullopt : std::optional(*last);
}

void Placement::move(const Members& members, TaskId at) {
  for (const TaskId member : members) place_[member.index()] = at;
}

// Nobody else wants or changes the result earlier.
bool Placement::is_in_time(const TensorRef& result, const Members& members, TaskId at) const {
  const auto is_later = [&](TaskId other) { return members.contains(other) || at < place_[other.index()]; };
  return std::ranges::all_of(uses_.readers(result.buffer), is_later) &&
         std::ranges::all_of(uses_.writers(result.buffer), is_later);
}

// Read there, the input is what all members that read it have seen: the same changes come before and behind,
// as an optimizer's of the weights do.
bool Placement::is_the_same(const TensorRef& input, const Members& members, TaskId at) const {
  return std::ranges::all_of(uses_.writers(input.buffer), [&](TaskId writer) {
    const bool is_before = place_[writer.index()] < at;
    return !members.contains(writer) && std::ranges::all_of(uses_.readers(input.buffer), [&](TaskId reader) {
      return !members.contains(reader) || (writer < reader) == is_before;
    });
  });
}

bool is_seen_outside(const Uses& uses, const TensorRef& result, const Members& members) {
  return !uses.is_private(result.buffer) || uses.writers(result.buffer).size() > 1 ||
         !std::ranges::all_of(uses.readers(result.buffer),
                              [&](TaskId reader) { return members.contains(reader); });
}

}  // namespace nimble
