#include "nimble/backend/cpu/cpu_executable.h"
#include "nimble/backend/cpu/intra_op_threads.h"
#include "nimble/backend/cpu/planned_allocator.h"
#include "nimble/backend/executable.h"
#include "nimble/torch/record_error.h"

namespace nimble {
namespace {

class CpuBackend final : public Backend {
 public:
  std::uint64_t alignment() const override { return 64; }  // what PyTorch's own CPU allocator gives

  void watch_allocations() override { cpu::install_planned_allocator(); }

  void check(const Program& program) const override {
    for (const Buffer& buffer : program.buffers) {
      if (buffer.device.is_cpu()) continue;
      throw RecordError("[nimble::record] the program uses CPU memory and a tensor on " +
                        buffer.device.str() + ", which the CPU backend cannot reach");
    }
  }

  std::unique_ptr<Executable> bind(ExecutionPlan plan, const BindOptions& options) override {
    return cpu::make_cpu_executable(std::move(plan), options);
  }

  // Streams share the cores: more than one stream never means more threads than PyTorch was given.
  std::vector<StreamLimit> stream_choices(std::size_t degree_of_concurrency) const override {
    std::vector<StreamLimit> choices = {StreamLimit::at_most(1)};
    const auto cores = static_cast<std::size_t>(cpu::intra_op_threads());
    for (std::size_t streams = 2; streams <= cores && streams <= degree_of_concurrency; streams *= 2) {
      choices.push_back(StreamLimit::at_most(streams));
    }
    return choices;
  }
};

}  // namespace

Backend& cpu_backend() {
  static CpuBackend backend;
  return backend;
}

}  // namespace nimble
