#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace nimble {

// The value in the middle: of an even number, the larger of the two. There must be one at least.
template <class Number>
Number median(std::vector<Number> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace nimble
