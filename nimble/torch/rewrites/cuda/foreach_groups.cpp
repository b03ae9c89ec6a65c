#include "nimble/torch/rewrites/cuda/foreach_groups.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "nimble/torch/rewrites/pointwise_tasks.h"

namespace nimble {
namespace {

constexpr std::size_t kMostCalls = 32;

using Refs = std::vector<TensorRef>;
using RefsByBuffer = std::map<BufferId, Refs>;

void add(RefsByBuffer& to, const Refs& refs) {
  for (const TensorRef& ref : refs) to[ref.buffer].push_back(ref);
}
bool overlap(const Refs& some, const RefsByBuffer& others) {
  return std::ranges::any_of(some, [&](const TensorRef& ref) {
    const auto found = others.find(ref.buffer);
    return found != others.end() && std::ranges::any_of(found->second, [&](const TensorRef& other) {
             return may_overlap(ref, other);
           });
  });
}

// Whether two calls work on a list that is the same. Numbers that both read do not count.
bool share_a_list(const ForeachCall& a, const ForeachCall& b) {
  if (!are_alike(a.result, b.result)) return false;
  return std::ranges::any_of(lists_of(a), [&](const RefList* list) {
    return are_alike(*list, a.result) &&
           std::ranges::any_of(lists_of(b), [&](const RefList* other) { return *list == *other; });
  });
}

// A group that more tasks may join.
struct OpenGroup {
  ForeachGroup group;
  RefsByBuffer reads, writes;

  // Whether its members could not be moved behind `task`.
  bool must_stay_before(const Task& task) const {
    return overlap(task.reads, writes) || overlap(task.writes, writes) || overlap(task.writes, reads);
  }
  bool shares_a_list_with(const ForeachCall& call) const {
    return std::ranges::any_of(group.calls,
                               [&](const ForeachCall& member) { return share_a_list(call, member); });
  }
};

// Whether each place can be worked on without a look at the others: a tensor that some call writes is the
// same one, at the same place of the same list, wherever it appears.
bool are_apart(const std::vector<ForeachCall>& calls) {
  std::vector<const RefList*> lists;  // each once
  std::vector<bool> is_written;
  for (const ForeachCall& call : calls) {
    for (const RefList* list : lists_of(call)) {
      const auto known = std::ranges::find_if(lists, [&](const RefList* other) { return *other == *list; });
      const auto index = static_cast<std::size_t>(known - lists.begin());
      if (known == lists.end()) {
        lists.push_back(list);
        is_written.push_back(false);
      }
      if (list == &call.result) is_written[index] = true;
    }
  }
  RefsByBuffer all, written;  // so far
  for (std::size_t l = 0; l < lists.size(); ++l) {
    for (const TensorRef& ref : *lists[l]) {
      if (overlap({ref}, is_written[l] ? all : written)) return false;
      add(all, {ref});
      if (is_written[l]) add(written, {ref});
    }
  }
  return true;
}

class Grouping {
 public:
  explicit Grouping(const Program& program) : program_(program) {}

  std::vector<ForeachGroup> run() && {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      const auto call = foreach_call(program_, program_.tasks[i]);
      if (call && are_apart({*call})) {
        join(TaskId{i}, *call);
      } else {
        close_those_before(program_.tasks[i]);
      }
    }
    while (!open_.empty()) close(open_.begin());
    std::ranges::sort(closed_, {}, [](const ForeachGroup& group) { return group.members.back(); });
    return std::move(closed_);
  }

 private:
  using Place = std::vector<OpenGroup>::iterator;

  // A call goes to the group that it has a list in common with; if there are several, they become one.
  void join(TaskId id, const ForeachCall& call) {
    const Task& task = program_.task(id);
    OpenGroup joined;
    std::vector<bool> taken;
    for (const OpenGroup& group : open_) {
      const Task& member = program_.task(group.group.members.back());
      taken.push_back(group.shares_a_list_with(call) && belong_together(member, task));
      if (taken.back()) append(joined, group);
    }
    sort(joined.group);
    joined.group.members.push_back(id);
    joined.group.calls.push_back(call);
    add(joined.reads, task.reads);
    add(joined.writes, task.writes);
    if (joined.group.calls.size() <= kMostCalls && are_apart(joined.group.calls)) {
      for (std::size_t i = taken.size(); i-- > 0;) {
        if (taken[i]) open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    } else {
      joined = {.group = {{id}, {call}}, .reads = {}, .writes = {}};
      add(joined.reads, task.reads);
      add(joined.writes, task.writes);
    }
    close_those_before(task);
    open_.push_back(std::move(joined));
  }

  static void append(OpenGroup& to, const OpenGroup& from) {
    std::ranges::copy(from.group.members, std::back_inserter(to.group.members));
    std::ranges::copy(from.group.calls, std::back_inserter(to.group.calls));
    for (const auto& [buffer, refs] : from.reads) add(to.reads, refs);
    for (const auto& [buffer, refs] : from.writes) add(to.writes, refs);
  }

  // Groups that become one have nothing to do with each other: any order will do, but theirs is the one to
  // read.
  static void sort(ForeachGroup& group) {
    std::map<TaskId, ForeachCall> in_order;
    for (std::size_t i = 0; i < group.members.size(); ++i) in_order.emplace(group.members[i], group.calls[i]);
    group = {};
    for (auto& [id, call] : in_order) {
      group.members.push_back(id);
      group.calls.push_back(std::move(call));
    }
  }

  void close_those_before(const Task& task) {
    for (auto group = open_.begin(); group != open_.end();) {
      group = group->must_stay_before(task) ? close(group) : std::next(group);
    }
  }
  Place close(Place group) {
    if (group->group.members.size() > 1) closed_.push_back(std::move(group->group));
    return open_.erase(group);
  }

  const Program& program_;
  std::vector<OpenGroup> open_;
  std::vector<ForeachGroup> closed_;
};

}  // namespace

std::vector<ForeachGroup> foreach_groups(const Program& program) { return Grouping(program).run(); }

}  // namespace nimble
