#pragma once

#include <cstdint>

#include "nimble/kernels/iteration.h"

namespace nimble::kernels {

// How threads share rows that they hold in their registers.
struct RowDivision {
  std::int64_t row_threads;  // that share one row
  std::int64_t block_rows;   // that one block goes over
  std::int64_t items;        // vectors of a row that one thread holds
  std::int64_t width;        // elements of such a vector

  // `held` is how many numbers registers hold for each element. Of the two ways to divide the work,
  // `candidate` counts from the one that should be faster.
  RowDivision(const Iteration& iteration, std::int64_t rows, std::int64_t columns, std::int64_t held,
              std::int64_t candidate);
};

}  // namespace nimble::kernels
