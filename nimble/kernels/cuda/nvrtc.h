#pragma once

#include <string>

namespace nimble::kernels {

// CUDA's run-time compiler. Its library is loaded at first use; it needs no GPU and no driver.

// "13.0"
std::string compiler_version();

// What `source` compiles to for a GPU of the architecture `arch` (90 is sm_90), ready to be loaded. Throws
// Error with the compiler's messages. Any thread may call.
std::string compile_to_cubin(const std::string& source, int arch, bool contract);

}  // namespace nimble::kernels
