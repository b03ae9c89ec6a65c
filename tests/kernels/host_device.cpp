#include "tests/kernels/host_device.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>

#include "nimble/core/files.h"
#include "nimble/kernels/device_sources.h"
#include "tests/core/temporary_folder.h"

namespace nimble::testing {
namespace {

using Run = void (*)(void* const* pointers, unsigned blocks, unsigned threads);

// The kernel's own text with the host's instructions, and a loop over all threads of all blocks.
std::string host_program(const kernels::KernelSource& kernel, const std::string& arguments) {
  std::string text = kernel.text;
  const bool waits = text.find("__syncthreads") != text.npos || text.find("__shfl") != text.npos;
  text.replace(text.find(kernels::device::instructions), kernels::device::instructions.size(),
               std::string(waits ? "#define THREADS_WAIT\n" : "") + "#include \"" HOST_DEVICE "\"\n");
  return text + R"(
struct Any {
  void* pointer;
  template <class T>
  operator T*() const { return static_cast<T*>(pointer); }
};
extern "C" void run(void* const* pointers, unsigned blocks, unsigned threads) {
  const auto kernel = [&] { nimble_kernel()" +
         arguments + R"(); };
#ifdef THREADS_WAIT
  Block block(threads);
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) block.run(kernel);
#else
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel();
  }
#endif
}
)";
}

Run compiled(const std::string& program, bool contract) {
  static std::map<std::string, Run> known;
  if (const auto found = known.find(program); found != known.end()) return found->second;
  const TemporaryFolder folder;
  const auto source = folder.path() / "kernel.cpp", library = folder.path() / "kernel.so";
  write_file(source, program);
  // Every kernel has shared memory of its own, whatever others call theirs: -fno-gnu-unique.
  const std::string command =
      std::string(HOST_COMPILER) +
      " -std=c++20 -O1 -fPIC -shared -w -fno-gnu-unique -ffp-contract=" + (contract ? "fast" : "off") +
      " -o " + library.string() + " " + source.string();
  if (std::system(command.c_str()) != 0) throw std::runtime_error("does not compile:\n" + program);
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays: its code may run again
  if (handle == nullptr) throw std::runtime_error(dlerror());
  return known[program] = reinterpret_cast<Run>(dlsym(handle, "run"));
}

}  // namespace

void run_on_host(const kernels::KernelSource& kernel, const std::vector<at::Tensor>& tensors) {
  std::vector<void*> pointers;
  std::string arguments;
  for (const at::Tensor& tensor : tensors) {
    if (!pointers.empty()) arguments += ", ";
    arguments += "Any{pointers[" + std::to_string(pointers.size()) + "]}";
    pointers.push_back(tensor.defined() ? tensor.data_ptr() : nullptr);
  }
  for (const std::int64_t number : kernel.numbers) arguments += ", " + std::to_string(number);
  compiled(host_program(kernel, arguments), kernel.contract)(pointers.data(), kernel.blocks, kernel.threads);
}

void run_with_table_on_host(const kernels::KernelSource& kernel, std::span<const std::uint64_t> table) {
  void* const pointers[] = {const_cast<std::uint64_t*>(table.data())};
  const std::string argument = "*static_cast<const Table*>(pointers[0])";
  compiled(host_program(kernel, argument), kernel.contract)(pointers, kernel.blocks, kernel.threads);
}

}  // namespace nimble::testing
