#include "nimble/kernels/cuda/nvrtc.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "nimble/core/error.h"

namespace nimble::kernels {
namespace {

// The library of the same CUDA as the runtime's: as the loader finds it, or else beside the runtime itself.
void* open_library() {
  const std::string name = "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000);
  if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  Dl_info runtime = {};
  if (dladdr(reinterpret_cast<void*>(&cudaRuntimeGetVersion), &runtime) != 0) {
    const auto beside = std::filesystem::canonical(runtime.dli_fname).parent_path() / name;
    if (void* library = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw Error(
      "[nimble::kernels] " + name +
      " was not found: install CUDA's run-time compiler (a dependency of PyTorch's CUDA wheels), or run "
      "with rewrites=\"none\"");
}

template <class Function>
Function* symbol(void* library, const char* name) {
  if (void* found = dlsym(library, name)) return reinterpret_cast<Function*>(found);
  throw Error(std::string("[nimble::kernels] CUDA's run-time compiler has no function ") + name);
}

struct Nvrtc {
  void* library = open_library();
  decltype(nvrtcVersion)* version = symbol<decltype(nvrtcVersion)>(library, "nvrtcVersion");
  decltype(nvrtcGetErrorString)* error_string =
      symbol<decltype(nvrtcGetErrorString)>(library, "nvrtcGetErrorString");
  decltype(nvrtcCreateProgram)* create = symbol<decltype(nvrtcCreateProgram)>(library, "nvrtcCreateProgram");
  decltype(nvrtcDestroyProgram)* destroy =
      symbol<decltype(nvrtcDestroyProgram)>(library, "nvrtcDestroyProgram");
  decltype(nvrtcCompileProgram)* compile =
      symbol<decltype(nvrtcCompileProgram)>(library, "nvrtcCompileProgram");
  decltype(nvrtcGetProgramLogSize)* log_size =
      symbol<decltype(nvrtcGetProgramLogSize)>(library, "nvrtcGetProgramLogSize");
  decltype(nvrtcGetProgramLog)* log = symbol<decltype(nvrtcGetProgramLog)>(library, "nvrtcGetProgramLog");
  decltype(nvrtcGetCUBINSize)* cubin_size = symbol<decltype(nvrtcGetCUBINSize)>(library, "nvrtcGetCUBINSize");
  decltype(nvrtcGetCUBIN)* cubin = symbol<decltype(nvrtcGetCUBIN)>(library, "nvrtcGetCUBIN");

  void check(nvrtcResult result, const char* what) const {
    if (result == NVRTC_SUCCESS) return;
    throw Error(std::string("[nimble::kernels] ") + what + ": " + error_string(result));
  }
};

const Nvrtc& nvrtc() {
  static const Nvrtc loaded;
  return loaded;
}

}  // namespace

std::string compiler_version() {
  int major = 0, minor = 0;
  nvrtc().check(nvrtc().version(&major, &minor), "nvrtcVersion");
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string compile_to_cubin(const std::string& source, int arch, bool contract) {
  const Nvrtc& api = nvrtc();
  nvrtcProgram program = nullptr;
  api.check(api.create(&program, source.c_str(), "nimble_kernel.cu", 0, nullptr, nullptr),
            "nvrtcCreateProgram");
  const auto destroy = [&](nvrtcProgram* handle) { api.destroy(handle); };
  const std::unique_ptr<nvrtcProgram, decltype(destroy)> owner(&program, destroy);

  const std::string architecture = "--gpu-architecture=sm_" + std::to_string(arch);
  const std::vector<const char*> options = {architecture.c_str(), "--std=c++17", "-default-device",
                                            contract ? "--fmad=true" : "--fmad=false"};
  if (api.compile(program, static_cast<int>(options.size()), options.data()) != NVRTC_SUCCESS) {
    std::size_t size = 0;
    api.check(api.log_size(program, &size), "nvrtcGetProgramLogSize");
    std::string log(size, '\0');
    api.check(api.log(program, log.data()), "nvrtcGetProgramLog");
    throw Error("[nimble::kernels] a generated kernel does not compile, which is a bug of Nimble's:\n" + log +
                "\n" + source);
  }
  std::size_t size = 0;
  api.check(api.cubin_size(program, &size), "nvrtcGetCUBINSize");
  std::string cubin(size, '\0');
  api.check(api.cubin(program, cubin.data()), "nvrtcGetCUBIN");
  return cubin;
}

}  // namespace nimble::kernels
