#include "nimble/kernels/cuda/nvrtc.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <vector>

#include "nimble/core/error.h"

namespace nimble::kernels {
namespace {

void* open(const std::string& name) { return dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); }

// A library in the folder of the one that `function` is from; none if it is not there.
void* open_beside(const void* function, const std::string& name) {
  Dl_info found = {};
  if (dladdr(function, &found) == 0) return nullptr;
  std::error_code nowhere;
  return open(std::filesystem::canonical(found.dli_fname, nowhere).parent_path() / name);
}

std::string library_name(const std::string& name) {
  return name + ".so." + std::to_string(CUDART_VERSION / 1000);
}

// The library of the same CUDA as the runtime's: as the loader finds it, or else beside the runtime itself.
void* open_library() {
  const std::string name = library_name("libnvrtc");
  if (void* library = open(name)) return library;
  if (void* library = open_beside(reinterpret_cast<void*>(&cudaRuntimeGetVersion), name)) return library;
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
  void* library;
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

// A text on its way through the compiler.
class Compilation {
 public:
  Compilation(const Nvrtc& api, const std::string& source) : api_(api) {
    api_.check(api_.create(&handle_, source.c_str(), "nimble_kernel.cu", 0, nullptr, nullptr),
               "nvrtcCreateProgram");
  }
  ~Compilation() { api_.destroy(&handle_); }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  nvrtcProgram get() const { return handle_; }

 private:
  const Nvrtc& api_;
  nvrtcProgram handle_ = nullptr;
};

std::string version_of(const Nvrtc& api) {
  int major = 0, minor = 0;
  api.check(api.version(&major, &minor), "nvrtcVersion");
  return std::to_string(major) + "." + std::to_string(minor);
}

const Nvrtc& compiler() {
  static const Nvrtc loaded{open_library()};
  return loaded;
}

// The first compilation of a library takes SIGINT, SIGTERM and SIGXFSZ over until its front end is done. If
// it were beside the first one of another, each would put back what it had found, one of them the handlers of
// the other, for good. So the first is of nothing, with none of ours beside it.
Nvrtc once_used(const Nvrtc& api) {
  api.check(api.compile(Compilation(api, "").get(), 0, nullptr), "nvrtcCompileProgram");
  return api;
}

// CUDA brings the same compiler a second time, under another name, with its own file of what is built in.
// None where it is not there, or is not what it seems. Used once.
std::optional<Nvrtc> load_twin() try {
  const auto* const function = reinterpret_cast<const void*>(compiler().version);
  const std::string built_in = "libnvrtc-builtins.alt.so." + compiler_version();
  void* const library = open_beside(function, library_name("libnvrtc.alt"));
  if (!library || !open_beside(function, built_in)) return {};
  const Nvrtc twin{library};
  return version_of(twin) == compiler_version() ? std::optional(once_used(twin)) : std::nullopt;
} catch (const Error&) {
  return std::nullopt;
}

std::vector<Nvrtc> compilers() {
  std::vector<Nvrtc> all = {once_used(compiler())};
  if (const auto twin = load_twin()) all.push_back(*twin);
  return all;
}

// Of one library, only one thread at a time is in the compiler's front end, and with many cores all wait for
// it. So compilations take turns between the two.
const Nvrtc& next_compiler() {
  static const std::vector<Nvrtc> all = compilers();
  static std::atomic<unsigned> turn = 0;
  return all[turn++ % all.size()];
}

}  // namespace

std::string compiler_version() { return version_of(compiler()); }

std::string compile_to_cubin(const std::string& source, int arch, bool contract) {
  const Nvrtc& api = next_compiler();
  const Compilation owner(api, source);
  const nvrtcProgram program = owner.get();
  const std::string architecture = "--gpu-architecture=sm_" + std::to_string(arch);
  // Minimal: without declarations of textures and of the runtime, which take as long to read as a kernel.
  const std::vector<const char*> options = {architecture.c_str(), "--std=c++17", "-default-device",
                                            "--minimal", contract ? "--fmad=true" : "--fmad=false"};
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
