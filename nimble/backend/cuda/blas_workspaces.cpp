#include "nimble/backend/cuda/blas_workspaces.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "nimble/backend/cuda/alignment.h"
#include "nimble/core/memory_plan.h"

namespace nimble::cuda {
namespace {

using Workspaces = at::cuda::WorkspaceMapWithMutex;

Workspaces& blas() { return at::cuda::cublas_handle_stream_to_workspace(); }
Workspaces& lt() { return at::cuda::cublaslt_handle_stream_to_workspace(); }

c10::DataPtr take(Workspaces& workspaces, void* handle, cudaStream_t stream) {
  const std::unique_lock lock(workspaces.mutex);
  auto node = workspaces.map.extract(std::make_tuple(handle, static_cast<void*>(stream)));
  return node ? std::move(node.mapped()) : c10::DataPtr();
}

void put(Workspaces& workspaces, void* handle, cudaStream_t stream, c10::DataPtr memory) {
  const std::unique_lock lock(workspaces.mutex);
  workspaces.map.insert_or_assign(std::make_tuple(handle, static_cast<void*>(stream)), std::move(memory));
}

bool has_any(Workspaces& workspaces, cudaStream_t stream) {
  const std::shared_lock lock(workspaces.mutex);
  return std::any_of(workspaces.map.begin(), workspaces.map.end(), [&](const auto& entry) {
    return std::get<1>(entry.first) == static_cast<void*>(stream);
  });
}

// Memory filled with a number that no kernel leaves behind, on which the last byte written can be found.
class Traced {
 public:
  explicit Traced(std::uint64_t bytes)
      : rows_(at::full({static_cast<std::int64_t>(align(bytes) / kAlignment), kWordsInARow}, kUntouched,
                       at::TensorOptions(at::kLong).device(at::kCUDA))) {}

  c10::DataPtr lend() const { return {rows_.mutable_data_ptr(), rows_.device()}; }

  // How much of it, from its beginning, was written to; a little where nothing was, for whoever must get
  // some.
  std::uint64_t touched_bytes() const {
    const at::Tensor touched = rows_.ne(kUntouched).any(1).nonzero();
    const std::int64_t last = touched.numel() == 0 ? 0 : touched.max().item<std::int64_t>();
    return static_cast<std::uint64_t>(last + 1) * kAlignment;
  }

 private:
  static constexpr std::int64_t kUntouched = 0x7ff4'dead'5eed'f00d, kWordsInARow = kAlignment / 8;
  at::Tensor rows_;
};

}  // namespace

WorkspaceProbe::WorkspaceProbe(cudaStream_t stream) : stream_(stream) {
  find_handle();
  if (!handle_) return;
  blas_before_ = take(blas(), handle_, stream_);
  lt_before_ = take(lt(), handle_, stream_);
}

WorkspaceProbe::~WorkspaceProbe() {
  if (!handle_) return;
  before_task();  // a task that threw has left what it was lent, which is gone
  if (blas_before_) put(blas(), handle_, stream_, std::move(blas_before_));
  if (lt_before_) put(lt(), handle_, stream_, std::move(lt_before_));
}

// Asking for this thread's handle makes one where there is none, which is slow; so only where cuBLAS is in
// use.
void WorkspaceProbe::find_handle() {
  if (has_any(blas(), stream_) || has_any(lt(), stream_)) handle_ = at::cuda::getCurrentCUDABlasHandle();
}

void WorkspaceProbe::before_task() {
  if (!handle_) return;
  take(blas(), handle_, stream_);
  take(lt(), handle_, stream_);
}

WorkspaceNeed WorkspaceProbe::take_asked_for() {
  if (!handle_) find_handle();
  if (!handle_) return {};
  WorkspaceNeed asked;
  if (take(blas(), handle_, stream_)) asked.blas = at::cuda::getChosenWorkspaceSize();
  if (take(lt(), handle_, stream_)) asked.lt = at::cuda::getCUDABlasLtWorkspaceSize();
  return asked;
}

WorkspaceNeed WorkspaceProbe::after_task(const std::function<void()>& again) {
  WorkspaceNeed need = take_asked_for();
  if (need == WorkspaceNeed{}) return need;
  const c10::InferenceMode ordinary(false);
  const Traced blas_memory(need.blas), lt_memory(need.lt);
  if (need.blas) put(blas(), handle_, stream_, blas_memory.lend());
  if (need.lt) put(lt(), handle_, stream_, lt_memory.lend());
  again();
  before_task();
  if (need.blas) need.blas = blas_memory.touched_bytes();
  if (need.lt) need.lt = lt_memory.touched_bytes();
  return need;
}

void forget_workspaces(std::span<const cudaStream_t> streams) {
  for (Workspaces* workspaces : {&blas(), &lt()}) {
    const std::unique_lock lock(workspaces->mutex);
    std::erase_if(workspaces->map, [&](const auto& entry) {
      return std::find(streams.begin(), streams.end(), std::get<1>(entry.first)) != streams.end();
    });
  }
}

BlasWorkspaces::BlasWorkspaces(const ExecutionPlan& plan, std::vector<WorkspaceNeed> needs,
                               c10::Device device)
    : needs_(std::move(needs)), offsets_(needs_.size()) {
  std::vector<BufferSpec> specs;
  for (std::uint32_t t = 0; t < needs_.size(); ++t) {
    if (needs_[t] == WorkspaceNeed{}) continue;
    specs.push_back({"workspace of " + plan.graph.name(TaskId{t}),
                     align(needs_[t].blas) + align(needs_[t].lt),
                     kAlignment,
                     {TaskId{t}}});
  }
  if (specs.empty()) return;
  const TaskGraph order = happens_before_graph(plan.graph, plan.schedule);
  const MemoryPlan placed = plan_memory(specs, order, plan.schedule.launch_order);
  for (std::size_t i = 0; i < specs.size(); ++i) offsets_[specs[i].uses[0].index()] = placed.offsets[i];
  memory_.emplace(placed.arena_bytes, device);
}

BlasWorkspaces::Lender::Lender(const BlasWorkspaces& workspaces) : workspaces_(workspaces) {
  if (workspaces_.memory_) handle_ = at::cuda::getCurrentCUDABlasHandle();
}

BlasWorkspaces::Lender::Loan::Loan(const Lender& lender, TaskId task, cudaStream_t stream)
    : lender_(lender), stream_(stream) {
  const BlasWorkspaces& workspaces = lender.workspaces_;
  if (!workspaces.memory_) return;
  const WorkspaceNeed& need = workspaces.needs_[task.index()];
  if (need == WorkspaceNeed{}) return;
  lent_ = true;
  blas_before_ = take(blas(), lender.handle_, stream);
  lt_before_ = take(lt(), lender.handle_, stream);
  const c10::Device device(c10::kCUDA, c10::cuda::getCurrentCUDAStream().device_index());
  char* address = workspaces.memory_->data() + workspaces.offsets_[task.index()];
  if (need.blas) put(blas(), lender.handle_, stream, {address, device});
  if (need.lt) put(lt(), lender.handle_, stream, {address + align(need.blas), device});
}

BlasWorkspaces::Lender::Loan::~Loan() {
  if (!lent_) return;
  take(blas(), lender_.handle_, stream_);
  take(lt(), lender_.handle_, stream_);
  if (blas_before_) put(blas(), lender_.handle_, stream_, std::move(blas_before_));
  if (lt_before_) put(lt(), lender_.handle_, stream_, std::move(lt_before_));
}

}  // namespace nimble::cuda
