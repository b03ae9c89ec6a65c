#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/version.h>

#include <array>
#include <sstream>

#include "nimble/backend/cuda/alignment.h"
#include "nimble/backend/cuda/graph_executable.h"
#include "nimble/backend/cuda/handles.h"
#include "nimble/backend/cuda/host_tensors.h"
#include "nimble/backend/cuda/planned_allocator.h"
#include "nimble/backend/cuda/stream_executable.h"
#include "nimble/backend/executable.h"
#include "nimble/torch/tf32.h"

namespace nimble {
namespace {

class CudaBackend final : public Backend {
 public:
  std::uint64_t alignment() const override { return cuda::kAlignment; }

  void watch_allocations() override { cuda::install_planned_allocator(); }

  void check(const Program& program) const override { cuda::check_host_tensors(program); }

  std::unique_ptr<Executable> bind(ExecutionPlan plan, const BindOptions& options) override {
    watch_allocations();
    return options.graph ? cuda::make_graph_executable(std::move(plan), options)
                         : cuda::make_stream_executable(std::move(plan), options);
  }

  std::string measured_on(c10::Device device) const override {
    const auto& settings = at::globalContext();
    const cudaDeviceProp* properties = at::cuda::getDeviceProperties(device.index());
    int driver = 0;
    cuda::check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    std::ostringstream text;
    text << properties->name << ' ' << properties->multiProcessorCount << ' ' << properties->totalGlobalMem
         << "\ndriver " << driver << ", torch " << TORCH_VERSION << '\n'
         << at::detail::getCUDAHooks().showConfig() << "benchmark " << settings.benchmarkCuDNN()
         << ", deterministic " << settings.deterministicCuDNN() << settings.deterministicAlgorithms()
         << ", tf32 " << allows_tf32(at::Float32Op::CONV) << allows_tf32(at::Float32Op::MATMUL) << '\n';
    return text.str();
  }

  std::vector<StreamLimit> stream_choices(std::size_t degree_of_concurrency) const override {
    std::vector<StreamLimit> choices = {StreamLimit::at_most(1)};
    if (degree_of_concurrency <= 1) return choices;
    // Where there are few branches, one stream more or less counts; a large program would take long to try
    // all.
    constexpr std::array<std::size_t, 4> kForFew = {2, 3, 4, 6}, kForMany = {2, 4, 8, 16};
    for (const std::size_t streams : degree_of_concurrency <= 8 ? kForFew : kForMany) {
      if (streams <= degree_of_concurrency) choices.push_back(StreamLimit::at_most(streams));
    }
    choices.push_back(StreamLimit::maximum());
    return choices;
  }
};

}  // namespace

bool cuda_available() { return c10::cuda::device_count() > 0; }

Backend& cuda_backend() {
  if (!cuda_available()) {
    throw Error(
        "[nimble::compile] no CUDA device was found: there is none, its driver does not work, or "
        "CUDA_VISIBLE_DEVICES hides it. Move the model and its inputs to the CPU");
  }
  static CudaBackend backend;
  return backend;
}

}  // namespace nimble
