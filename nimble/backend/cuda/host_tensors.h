#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "nimble/backend/bound_program.h"
#include "nimble/torch/program.h"

namespace nimble::cuda {

// Host memory in a program that runs on a GPU. A captured graph does not see later changes of it, so:
//  - an input on the host that is only copied to the GPU becomes an input on the GPU: the copy is made at
//  each replay;
//  - constant indices on the host become constants on the GPU, which is what eager code makes of them each
//  time;
//  - zero-dimensional tensors are numbers to a kernel: their values are watched, see HostScalars;
//  - everything else is refused, with RecordError.
void check_host_tensors(const Program& program);
Program move_host_tensors(Program program);

// The zero-dimensional host tensors from which a program's kernels take numbers.
class HostScalars {
 public:
  explicit HostScalars(const Program& program);

  // Gives scalar inputs a place in host memory that stays.
  void place(BoundProgram& bound);

  // Takes over the values as they are now. True if any is other than the last time.
  bool update(std::span<const at::Tensor> inputs);

 private:
  // The bytes of one host buffer from which numbers are taken.
  struct Source {
    BufferId buffer;
    ByteRange range;
    const char* outside = nullptr;  // nullptr: it is an input
    std::size_t input = 0;
    std::ptrdiff_t shift = 0;  // from the start of the input to the range
    std::vector<char> values;
  };
  std::vector<Source> sources_;
  bool known_ = false;
};

}  // namespace nimble::cuda
