#include "nimble/backend/cuda/device_program.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "nimble/backend/cuda/alignment.h"
#include "nimble/backend/cuda/capture_refusal.h"
#include "nimble/backend/cuda/capture_turns.h"
#include "nimble/torch/outside_state.h"

namespace nimble::cuda {
namespace {

ExecutionPlan on_device(ExecutionPlan plan) {
  plan.program = std::make_shared<const Program>(move_host_tensors(*plan.program));
  return plan;
}

// By buffer: how far its first byte lies behind a multiple of kAlignment. PyTorch's own storages begin at
// one, foreign memory (from_blob) anywhere, and only an example can tell.
std::vector<std::uint64_t> misalignments(const Program& program, std::span<const at::Tensor> examples) {
  std::vector<std::uint64_t> misaligned(program.buffers.size(), 0);
  if (examples.size() != program.inputs.size()) return misaligned;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const TensorRef& ref = program.inputs[i];
    if (!examples[i].is_cuda()) continue;
    const auto address = reinterpret_cast<std::uintptr_t>(examples[i].const_data_ptr());
    const auto shift = static_cast<std::uint64_t>(ref.offset) * c10::elementSize(ref.dtype);
    misaligned[ref.buffer.index()] = (address - shift) % kAlignment;
  }
  return misaligned;
}

// The bytes of each buffer that anybody looks at: an input may be a small part of a large storage.
std::vector<ByteRange> seen_ranges(const Program& program) {
  std::vector<ByteRange> seen(program.buffers.size());
  const auto see = [&](const TensorRef& ref) {
    const ByteRange range = byte_range(ref);
    ByteRange& all = seen[ref.buffer.index()];
    if (range.empty()) return;
    all = all.empty() ? range : ByteRange{std::min(all.begin, range.begin), std::max(all.end, range.end)};
  };
  for (const TensorRef& input : program.inputs) see(input);
  for (const Task& task : program.tasks) {
    for (const TensorRef& ref : task.reads) see(ref);
    for (const TensorRef& ref : task.writes) see(ref);
  }
  return seen;
}

void copy(void* destination, const void* source, std::size_t bytes, cudaStream_t stream) {
  check(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
}

void refuse_in_a_capture(cudaStream_t stream) {
  if (!is_captured(stream)) return;
  throw Error(
      "[nimble::replay] called while the current stream is being captured into another CUDA graph. Call it "
      "outside of that capture: it is a graph of its own already");
}

void keep_alive(void* arena) { delete static_cast<std::shared_ptr<Arena>*>(arena); }

}  // namespace

DeviceProgram::DeviceProgram(ExecutionPlan plan, BindOptions options, std::shared_ptr<Arena> arena)
    : plan_(on_device(std::move(plan))),
      options_(std::move(options)),
      device_(program().device()),
      arena_bytes_(align(plan_.schedule.memory.arena_bytes)),
      places_(place_inputs_and_results()),
      arena_(arena && arena->size() >= needed_bytes() ? std::move(arena)
                                                      : std::make_shared<Arena>(needed_bytes(), device_)),
      bound_(plan_.program, addresses(), arena_),
      outputs_(plan_.program),
      scalars_(program()),
      draws_(program()) {
  options_.example_inputs.clear();  // they were the caller's, and all that was asked of them is known now
  options_.same_program = nullptr;
  options_.memory_of = nullptr;
  scalars_.place(bound_);
  find_input_copies();
  find_copied_results();
  // Whoever had this memory before may still be using it, on the stream on which it was given to us.
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_.index());
  done_.record(stream);
  last_stream_ = id_of(stream);
}

DeviceProgram::~DeviceProgram() {
  try {
    wait_until_idle();
    const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_.index());
    // In somebody's capture the copies would be part of it. Then what escaped keeps our memory alive.
    if (is_captured(stream) || !bound_.has_moved_in()) return;
    // Somebody may have changed gradients on any stream. While somebody captures, the whole device must
    // not be waited for; then, too, they keep our memory alive.
    const auto alone = no_capture_meanwhile();
    if (!alone) return;
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    bound_.move_out_escaped();
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  } catch (const std::exception&) {
    // The device is in error or gone; there is nothing left to wait for.
  }
}

std::vector<DeviceProgram::Place> DeviceProgram::place_inputs_and_results() {
  const std::vector<ByteRange> seen = seen_ranges(program());
  const std::vector<std::uint64_t> misaligned = misalignments(program(), options_.example_inputs);
  std::vector<Place> places;
  std::uint64_t end = arena_bytes_;
  for (std::uint32_t b = 0; b < program().buffers.size(); ++b) {
    const Buffer& buffer = program().buffers[b];
    const bool input = buffer.kind == BufferKind::kInput;
    const bool result = buffer.kind == BufferKind::kInternal && buffer.returned;
    if ((!input && !result) || buffer.device != device_ || buffer.bytes == 0) continue;
    const ByteRange range = input ? seen[b] : ByteRange{0, buffer.bytes};
    if (range.empty()) continue;
    // Kernels are chosen by how their arguments are aligned, so an input lies here as it does at the
    // caller's.
    const std::uint64_t shift = (misaligned[b] + range.begin) % kAlignment;
    places.push_back({BufferId{b}, align(end) + shift, range});
    end = places.back().offset + range.end - range.begin;
  }
  return places;
}

std::uint64_t DeviceProgram::needed_bytes() const {
  if (places_.empty()) return arena_bytes_;
  const Place& last = places_.back();
  return last.offset + last.range.end - last.range.begin;
}

std::vector<void*> DeviceProgram::addresses() {
  std::vector<void*> addresses(program().buffers.size(), nullptr);
  for (std::size_t b = 0; b < addresses.size(); ++b) addresses[b] = program().buffers[b].where_it_lies();
  for (std::size_t i = 0; i < plan_.memory.buffers.size(); ++i) {
    addresses[plan_.memory.buffers[i].index()] = arena_->data() + plan_.schedule.memory.offsets[i];
  }
  for (const Place& place : places_) {
    addresses[place.buffer.index()] = arena_->data() + place.offset - place.range.begin;
  }
  return addresses;
}

void DeviceProgram::find_input_copies() {
  const c10::InferenceMode ordinary(false);
  std::unordered_set<BufferId> written;
  for (const Task& task : program().tasks) {
    for (const TensorRef& ref : task.writes) written.insert(ref.buffer);
  }
  std::vector<TensorRef> copied;
  for (std::size_t i = 0; i < program().inputs.size(); ++i) {
    TensorRef ref = program().inputs[i];
    const Buffer& buffer = program().buffer(ref.buffer);
    const ByteRange range = byte_range(ref);
    if (buffer.kind != BufferKind::kInput || !buffer.device.is_cuda() || range.empty()) continue;
    ref.requires_grad = false;
    if (std::find(copied.begin(), copied.end(), ref) != copied.end()) continue;
    copied.push_back(ref);
    InputCopy copy{.input = i, .place = materialize(ref, bound_.storage_of(ref.buffer))};
    copy.address = copy.place.mutable_data_ptr();
    copy.bytes = range.end - range.begin;
    copy.in_one_piece = copy.place.is_non_overlapping_and_dense() ||
                        at::has_internal_overlap(copy.place) == at::MemOverlap::Yes;
    copy.written = written.contains(ref.buffer);
    input_copies_.push_back(std::move(copy));
  }
}

// Results lie in this program's memory; the caller gets a copy.
void DeviceProgram::find_copied_results() {
  if (options_.alias_outputs) return;
  for (const Output& output : program().outputs) {
    const BufferId id = output.ref.buffer;
    const Buffer& buffer = program().buffer(id);
    const bool is_itself = output.same_as_input || output.same_as_output || output.outside.defined();
    const bool is_callers = buffer.kind == BufferKind::kInput || buffer.kind == BufferKind::kExternal;
    if (is_itself || is_callers || !buffer.device.is_cuda() || buffer.bytes == 0) continue;
    if (std::find(copied_results_.begin(), copied_results_.end(), id) == copied_results_.end())
      copied_results_.push_back(id);
  }
}

DeviceProgram::Results DeviceProgram::make_results() const {
  Results results;
  results.reserve(copied_results_.size());
  // As at::empty does it, without the way through the dispatcher.
  for (const BufferId id : copied_results_) {
    results.emplace_back(id, c10::Storage(c10::Storage::use_byte_size_t(), program().buffer(id).bytes,
                                          c10::cuda::CUDACachingAllocator::get(), /*resizable=*/true));
  }
  return results;
}

void DeviceProgram::say_copies_in(std::span<const at::Tensor> inputs, std::vector<Copy>& copies) const {
  copies.clear();
  for (const InputCopy& copied : input_copies_) {
    const at::Tensor& input = inputs[copied.input];
    if (copied.in_one_piece && input.is_cuda())
      copies.push_back({copied.address, input.const_data_ptr(), copied.bytes});
  }
}

void DeviceProgram::say_copies_out(std::span<const at::Tensor> inputs, const Results& results,
                                   std::vector<Copy>& copies) const {
  copies.clear();
  for (const InputCopy& copied : input_copies_) {
    if (copied.written && copied.in_one_piece)
      copies.push_back({inputs[copied.input].mutable_data_ptr(), copied.address, copied.bytes});
  }
  for (const auto& [id, storage] : results) {
    copies.push_back({storage.mutable_data(), bound_.storage_of(id).data(), program().buffer(id).bytes});
  }
}

void DeviceProgram::copy_rest_in(std::span<const at::Tensor> inputs) {
  for (const InputCopy& copied : input_copies_) {
    const at::Tensor& input = inputs[copied.input];
    if (copied.in_one_piece && input.is_cuda()) continue;
    // PyTorch's own copy keeps pinned host memory from being reused before it has been read.
    const at::NoGradGuard no_grad;
    copied.place.copy_(input, /*non_blocking=*/true);
  }
}

bool DeviceProgram::copies_while_handing_out() const {
  return std::ranges::any_of(input_copies_,
                             [](const InputCopy& copied) { return copied.written && !copied.in_one_piece; });
}

Tensors DeviceProgram::hand_out(std::span<const at::Tensor> inputs, const Results& results) {
  for (const InputCopy& copied : input_copies_) {
    if (!copied.written || copied.in_one_piece) continue;
    const at::NoGradGuard no_grad;
    inputs[copied.input].detach().copy_(copied.place);
  }
  Tensors outputs = outputs_.collect(inputs, [&](BufferId id) { return result_storage(id, results); });
  bound_.bump_versions(inputs);
  return outputs;
}

void DeviceProgram::copy_in(std::span<const at::Tensor> inputs, cudaStream_t stream) {
  std::vector<Copy> copies;
  say_copies_in(inputs, copies);
  for (const Copy& c : copies) copy(c.to, c.from, c.bytes, stream);
  copy_rest_in(inputs);
}

Tensors DeviceProgram::copy_out(std::span<const at::Tensor> inputs, cudaStream_t stream) {
  const Results results = make_results();
  std::vector<Copy> copies;
  say_copies_out(inputs, results, copies);
  for (const Copy& c : copies) copy(c.to, c.from, c.bytes, stream);
  return hand_out(inputs, results);
}

c10::Storage DeviceProgram::result_storage(BufferId id, const Results& results) const {
  for (const auto& [made_for, storage] : results) {
    if (made_for == id) return storage;
  }
  const Buffer& buffer = program().buffer(id);
  const c10::Storage& own = bound_.storage_of(id);
  if (buffer.kind == BufferKind::kExternal) return own;
  if (options_.alias_outputs && buffer.bytes > 0) {
    if (buffer.outside.defined()) return own;
    // The arena lives as long as anybody looks at a result in it.
    return {c10::Storage::use_byte_size_t(), buffer.bytes,
            c10::DataPtr(own.mutable_data(), new std::shared_ptr<Arena>(arena_), &keep_alive, device_)};
  }
  c10::Allocator* allocator =
      buffer.device.is_cuda() ? c10::cuda::CUDACachingAllocator::get() : c10::GetCPUAllocator();
  c10::Storage result(c10::Storage::use_byte_size_t(), buffer.bytes, allocator, /*resizable=*/true);
  if (buffer.bytes > 0) std::memcpy(result.mutable_data(), own.data(), buffer.bytes);
  return result;
}

void DeviceProgram::issue(TaskId id, cudaStream_t stream, BoundProgram::Lane& lane,
                          const BlasWorkspaces::Lender& lender) {
  const auto current = c10::cuda::getStreamFromExternal(stream, device_.index());
  const c10::cuda::CUDAStreamGuard on_stream(current);
  const Task& task = program().task(id);
  const auto fail = [&](const std::string& reason) {
    throw Error("[nimble::cuda] " + task_name(program(), id) + " (" + task.op.operator_name().name + ")" +
                (task.where.empty() ? "" : " at " + task.where) + " failed while it was issued: " + reason);
  };
  try {
    if (options_.before_task) options_.before_task(id);
    const BlasWorkspaces::Lender::Loan workspace(lender, id, stream);
    bound_.run(id, lane);
  } catch (const Error& error) {  // ours: the results look otherwise than recorded
    fail(error.what());
  } catch (const c10::OutOfMemoryError& error) {  // nothing that the operator does at every capture
    fail(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    if (is_captured(stream)) refuse_in_graph(task, error.what_without_backtrace());
    fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    if (is_captured(stream)) refuse_in_graph(task, error.what());
    fail(error.what());
  }
}

void DeviceProgram::settle_results(cudaStream_t stream) {
  for (const Place& place : places_) {
    const c10::Storage& elsewhere = bound_.given(place.buffer);
    if (elsewhere)
      copy(arena_->data() + place.offset, elsewhere.data(), program().buffer(place.buffer).bytes, stream);
  }
}

void DeviceProgram::warm_up() {
  const auto stream = c10::cuda::getCurrentCUDAStream(device_.index());
  warm_on_ = {};
  const OutsideState before = OutsideState::save(program(), {});
  std::vector<WorkspaceNeed> needs(program().tasks.size());
  {
    const BlasWorkspaces no_workspaces(plan_, {}, device_);
    const BlasWorkspaces::Lender lender(no_workspaces);
    WorkspaceProbe probe(stream);
    BoundProgram::Lane lane;
    try {
      for (const TaskId task : plan_.schedule.launch_order) {
        const bool random = program().task(task).draw.has_value();
        if (random) draws_.before_measured();
        probe.before_task();
        issue(task, stream, lane, lender);
        if (random) draws_.after_measured(task);
        needs[task.index()] = probe.after_task([&] { issue(task, stream, lane, lender); });
      }
    } catch (...) {
      before.restore();
      throw;
    }
  }
  before.restore();
  bound_.release_given();
  if (!workspaces_ || workspaces_->needs() != needs) {
    workspaces_ = std::make_shared<const BlasWorkspaces>(plan_, std::move(needs), device_);
  }
  warm_on_ = std::this_thread::get_id();
}

void DeviceProgram::take_over_warm_up(const DeviceProgram& other) {
  if (!other.is_warm()) return;
  draws_ = other.draws_;
  workspaces_ = std::make_shared<const BlasWorkspaces>(plan_, other.workspaces_->needs(), device_);
  warm_on_ = other.warm_on_;
}

void DeviceProgram::settle_libraries(std::span<const at::Tensor> inputs, cudaStream_t stream) {
  constexpr int kAttempts = 5;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    static_cast<void>(cudaGetLastError());
    try {
      copy_in(inputs, stream);
      return warm_up();
    } catch (const std::exception&) {
      // Told us, and so nobody else.
    }
  }
}

DeviceProgram::Use::Use(DeviceProgram& program, cudaStream_t stream) : program_(program), stream_(stream) {
  refuse_in_a_capture(stream);
  // On the stream of the use before, this one comes after it anyway.
  id_ = id_of(stream_);
  if (id_ != program_.last_stream_) program_.done_.make_wait(stream_);
}

DeviceProgram::Use::~Use() {
  try {
    if (!ends_with_graph_) program_.done_.record(stream_);
    program_.last_stream_ = id_;
  } catch (const Error&) {
    // The device is in error, which whatever is asked of it next will say.
  }
}

void DeviceProgram::wait_until_idle() {
  // Whoever captures meanwhile, even on this thread, is not concerned.
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  done_.synchronize();
}

void DeviceProgram::let_current_stream_wait() {
  done_.make_wait(c10::cuda::getCurrentCUDAStream(device_.index()));
}

ExecutableReport DeviceProgram::report() const {
  return {.arena_bytes = plan_.schedule.memory.arena_bytes,
          .static_bytes = needed_bytes() - arena_bytes_,
          .workspace_bytes = workspaces_ ? workspaces_->bytes() : 0,
          .spare_bytes = arena_->size() - needed_bytes()};
}

}  // namespace nimble::cuda
