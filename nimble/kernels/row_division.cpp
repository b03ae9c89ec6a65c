#include "nimble/kernels/row_division.h"

#include <algorithm>

namespace nimble::kernels {

RowDivision::RowDivision(const Iteration& iteration, std::int64_t rows, std::int64_t columns,
                         std::int64_t held, std::int64_t candidate) {
  constexpr std::int64_t kWarp = 32, kMostThreads = 512, kMostElements = 16, kMostHeld = 96,
                         kManyRows = 132 * 4;
  width = iteration.vector(kMostElements);
  while (width > 1 && columns / width < kWarp) width /= 2;
  // Few rows are spread over many threads; of many, each thread holds as much as its registers allow.
  const bool spreads = (rows < kManyRows) == (candidate == 0);
  std::int64_t elements = spreads ? width : kMostElements;
  while (elements > width && elements * held > kMostHeld) elements /= 2;
  const auto warps = (columns + elements * kWarp - 1) / (elements * kWarp);
  row_threads = std::min(warps * kWarp, kMostThreads);
  items = (columns / width + row_threads - 1) / row_threads;
  block_rows = row_threads == kWarp && rows >= kManyRows ? 4 : 1;
}

}  // namespace nimble::kernels
