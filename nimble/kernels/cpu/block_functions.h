#pragma once

#include <cstdint>

namespace nimble::kernels {

// out[i] = function(in[0][i], in[1][i], …) for `count` neighbours. `out` is none of the others.
using BlockFunction = void (*)(float* out, const float* const* in, std::int64_t count);

// By the names of device/functions.cu; a table ends with a name that is none.
struct NamedBlockFunction {
  const char* name;
  BlockFunction run;
};

// The same functions, compiled for the vector instructions that every x86-64 processor has, and for those
// that most have.
namespace baseline {
extern const NamedBlockFunction block_functions[];
}
namespace avx2 {
extern const NamedBlockFunction block_functions[];
}
namespace avx512 {
extern const NamedBlockFunction block_functions[];
}

}  // namespace nimble::kernels
