#include "nimble/backend/timeline.h"

#include <algorithm>

namespace nimble {
namespace {

Nanoseconds length(const std::vector<TaskSpan>& run) {
  Nanoseconds last = 0;
  for (const TaskSpan& span : run) last = std::max(last, span.end);
  return last;
}

}  // namespace

std::vector<TaskSpan> run_of_median_length(std::vector<std::vector<TaskSpan>> runs) {
  const auto median = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2);
  std::ranges::nth_element(runs, median, {}, length);
  return std::move(*median);
}

}  // namespace nimble
