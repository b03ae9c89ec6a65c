#include "nimble/core/memory/liveness.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace nimble::memory {
namespace {

// By task: the latest position of a task that comes after it, its own if there is none.
std::vector<std::uint32_t> last_descendants(const TaskGraph& order, std::span<const TaskId> launch_order,
                                            const std::vector<std::uint32_t>& position) {
  std::vector<std::uint32_t> last = position;
  for (std::size_t p = launch_order.size(); p-- > 0;)
    for (TaskId next : order.successors(launch_order[p]))
      last[launch_order[p].index()] = std::max(last[launch_order[p].index()], last[next.index()]);
  return last;
}

std::vector<std::uint32_t> first_ancestors(const TaskGraph& order, std::span<const TaskId> launch_order,
                                           const std::vector<std::uint32_t>& position) {
  std::vector<std::uint32_t> first = position;
  for (TaskId task : launch_order)
    for (TaskId before : order.predecessors(task))
      first[task.index()] = std::min(first[task.index()], first[before.index()]);
  return first;
}

}  // namespace

Liveness::Liveness(std::span<const BufferSpec> buffers, const TaskGraph& order,
                   std::span<const TaskId> launch_order)
    : end_(static_cast<std::uint32_t>(launch_order.size())),
      lifetimes_(buffers.size()),
      order_(std::make_shared<const Reachability>(order)) {
  const auto position = positions_in(launch_order);
  const auto all_after = order_->all_after_from(launch_order);
  const auto all_before = order_->all_before_until(launch_order);
  const auto last_descendant = last_descendants(order, launch_order, position);
  const auto first_ancestor = first_ancestors(order, launch_order, position);
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    Lifetime& life = lifetimes_[b];
    life = {buffers[b].bytes, buffers[b].alignment, end_, 0, 0, end_, end_, 0};
    for (TaskId use : buffers[b].uses) {
      const std::size_t t = use.index();
      life.first = std::min(life.first, position[t]);
      life.last = std::max(life.last, position[t]);
      life.free_from = std::max(life.free_from, all_after[t]);
      life.free_until = std::min(life.free_until, all_before[t]);
      life.last_heir = std::min(life.last_heir, last_descendant[t]);
      life.first_ancestor = std::max(life.first_ancestor, first_ancestor[t]);
    }
  }
  find_extreme_uses(buffers, position);
}

void Liveness::find_extreme_uses(std::span<const BufferSpec> buffers,
                                 const std::vector<std::uint32_t>& position) {
  first_begin_.assign(1, 0);
  last_begin_.assign(1, 0);
  std::vector<TaskId> uses;
  for (const BufferSpec& buffer : buffers) {
    uses = buffer.uses;
    std::sort(uses.begin(), uses.end(),
              [&](TaskId a, TaskId b) { return position[a.index()] < position[b.index()]; });
    // A use can only come after an earlier one, so comparing with the extreme uses found so far is enough.
    for (TaskId use : uses)
      if (std::none_of(first_uses_.begin() + first_begin_.back(), first_uses_.end(),
                       [&](TaskId first) { return order_->happens_before(first, use); }))
        first_uses_.push_back(use);
    for (std::size_t i = uses.size(); i-- > 0;)
      if (std::none_of(last_uses_.begin() + last_begin_.back(), last_uses_.end(),
                       [&](TaskId last) { return order_->happens_before(uses[i], last); }))
        last_uses_.push_back(uses[i]);
    first_begin_.push_back(static_cast<std::uint32_t>(first_uses_.size()));
    last_begin_.push_back(static_cast<std::uint32_t>(last_uses_.size()));
  }
}

std::span<const TaskId> Liveness::first_uses(std::uint32_t buffer) const {
  return {first_uses_.data() + first_begin_[buffer], first_uses_.data() + first_begin_[buffer + 1]};
}

std::span<const TaskId> Liveness::last_uses(std::uint32_t buffer) const {
  return {last_uses_.data() + last_begin_[buffer], last_uses_.data() + last_begin_[buffer + 1]};
}

bool Liveness::before(std::uint32_t a, std::uint32_t b) const {
  const Lifetime &earlier = lifetimes_[a], &later = lifetimes_[b];
  if (earlier.free_from <= later.first || earlier.last < later.free_until) return true;
  if (later.first > earlier.last_heir || earlier.last < later.first_ancestor) return false;
  if (is_mirrored_) std::swap(a, b);
  for (TaskId last : last_uses(a)) {
    if (!order_->is_indexed(last)) return false;
    for (TaskId first : first_uses(b))
      if (!order_->happens_before(last, first)) return false;
  }
  return true;
}

bool Liveness::is_sequential() const {
  return std::all_of(lifetimes_.begin(), lifetimes_.end(),
                     [](const Lifetime& life) { return life.free_from == life.last + 1; });
}

Liveness Liveness::mirrored() const {
  Liveness other = *this;
  other.is_mirrored_ = !is_mirrored_;
  for (Lifetime& life : other.lifetimes_)
    life = {life.bytes,
            life.alignment,
            end_ - 1 - life.last,
            end_ - 1 - life.first,
            end_ - life.free_until,
            end_ - life.free_from,
            end_ - 1 - life.first_ancestor,
            end_ - 1 - life.last_heir};
  return other;
}

std::vector<std::uint64_t> Liveness::bytes_live() const {
  std::vector<std::uint64_t> live(end_ + 1);
  for (const Lifetime& life : lifetimes_) {
    live[life.first] += life.bytes;
    live[life.last + 1] -= life.bytes;  // wraps, and back in the sum below
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  return live;
}

std::uint64_t Liveness::most_bytes_live() const {
  const auto live = bytes_live();
  return *std::max_element(live.begin(), live.end());
}

std::vector<std::uint64_t> Liveness::most_bytes_beside() const {
  // maxima[k][p] is the greatest of the 2^k values from p on; two of these cover any lifetime.
  std::vector<std::vector<std::uint64_t>> maxima = {bytes_live()};
  for (std::size_t step = 1; 2 * step <= end_; step *= 2) {
    const auto& half = maxima.back();
    std::vector<std::uint64_t> whole(half.size() - step);
    for (std::size_t p = 0; p < whole.size(); ++p) whole[p] = std::max(half[p], half[p + step]);
    maxima.push_back(std::move(whole));
  }
  std::vector<std::uint64_t> result(size());
  for (std::size_t b = 0; b < size(); ++b) {
    const Lifetime& life = lifetimes_[b];
    const auto k = static_cast<std::size_t>(std::bit_width(life.last - life.first + 1) - 1);
    result[b] = std::max(maxima[k][life.first], maxima[k][life.last + 1 - (std::size_t{1} << k)]);
  }
  return result;
}

}  // namespace nimble::memory
