#include "nimble/backend/cpu/cpu_executable.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/ScopeExit.h>
#include <pthread.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <optional>

#include "nimble/backend/bound_program.h"
#include "nimble/backend/cpu/intra_op_threads.h"
#include "nimble/backend/cpu/planned_allocator.h"
#include "nimble/backend/cpu/random_positions.h"
#include "nimble/backend/cpu/stream_workers.h"
#include "nimble/backend/output_plan.h"
#include "nimble/backend/timeline.h"
#include "nimble/torch/outside_state.h"

namespace nimble::cpu {
namespace {

// Threads do not survive a fork, and a child must not wait for workers that are not there.
int fork_generation() {
  static std::atomic<int> generation = 0;
  static const bool registered = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); }) == 0;
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(ExecutionPlan plan, const BindOptions& options)
      : plan_(std::move(plan)),
        options_(options),
        threads_(options.threads_per_stream > 0 ? options.threads_per_stream : intra_op_threads()),
        arena_(std::make_shared<Arena>(plan_.schedule.memory.arena_bytes)),
        bound_(plan_.program, addresses(), arena_),
        outputs_(plan_.program),
        random_(*plan_.program),
        events_(plan_.schedule.event_count),
        generation_(fork_generation()) {
    if (const auto streams = plan_.schedule.streams.size(); streams > 1) {
      workers_.emplace(streams - 1, [threads = threads_] {
        // Holds for as long as the thread lives.
        static thread_local std::optional<IntraOpThreadsGuard> own;
        own.emplace(threads);
      });
    }
    for (auto& [buffer, memory] : aliased_) bound_.own(buffer, std::move(memory));
    find_results_without_maker();
  }

  ~CpuExecutable() override { bound_.move_out_escaped(); }

  Tensors replay(std::span<const at::Tensor> inputs) override {
    refuse_after_fork();
    run(inputs);
    Tensors outputs = outputs_.collect(inputs, [&](BufferId id) { return result_storage(id); });
    bound_.release_given();
    bound_.bump_versions(inputs);
    return outputs;
  }

  ExecutableReport report() const override {
    return {.arena_bytes = arena_->size(),
            .unplanned_allocations = unplanned_.load(),
            .threads_per_stream = static_cast<std::size_t>(threads_)};
  }

  std::vector<Nanoseconds> measure_tasks(std::span<const at::Tensor> inputs) override {
    refuse_after_fork();
    point_inputs(bound_, inputs);
    make_results_without_maker();
    std::vector<Nanoseconds> times(plan_.program->tasks.size());
    const IntraOpThreadsGuard threads(threads_);
    BoundProgram::Lane lane;
    random_.begin();
    for (const TaskId task : plan_.schedule.launch_order) {
      const auto start = std::chrono::steady_clock::now();
      random_.before(task);
      bound_.run(task, lane);
      random_.after(task);
      times[task.index()] = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    }
    bound_.release_given();
    return times;
  }

  std::vector<TaskSpan> measure_timeline(std::span<const at::Tensor> inputs) override {
    refuse_after_fork();
    const OutsideState before = OutsideState::save(*plan_.program, inputs);
    const auto put_back = c10::make_scope_exit([&] {
      stopwatch_.reset();
      before.try_restore();
    });
    std::vector<std::vector<TaskSpan>> runs;
    for (std::size_t i = 0; i <= kTimedReplays; ++i) {
      stopwatch_.emplace(Clock::now(), std::vector<TaskSpan>(plan_.program->tasks.size()));
      run(inputs);
      bound_.release_given();
      if (i > 0) runs.push_back(std::move(stopwatch_->spans));
    }
    return run_of_median_length(std::move(runs));
  }

  const ExecutionPlan& plan() const override { return plan_; }

 private:
  using Clock = std::chrono::steady_clock;

  // Of one replay. Streams write to different tasks, so they need no lock.
  struct Stopwatch {
    Stopwatch(Clock::time_point start, std::vector<TaskSpan> spans) : start(start), spans(std::move(spans)) {}
    Nanoseconds now() const { return std::chrono::nanoseconds(Clock::now() - start).count(); }

    Clock::time_point start;
    std::vector<TaskSpan> spans;
  };

  void run(std::span<const at::Tensor> inputs) {
    bound_.take_back_escaped();
    Tensors copies;  // until the replay is over
    if (bound_.has_moved_in()) inputs = copies = outside_arena(inputs);
    point_inputs(bound_, inputs);
    make_results_without_maker();
    random_.begin();
    run_streams();
    random_.end();
  }

  // The inputs, as copies where they lie in our own memory: what the last replay left outside and somebody
  // hands in again would be overwritten before it is read.
  Tensors outside_arena(std::span<const at::Tensor> inputs) const {
    Tensors elsewhere(inputs.begin(), inputs.end());
    for (at::Tensor& input : elsewhere) {
      if (input.numel() == 0 || !arena_->contains(input.const_data_ptr())) continue;
      const at::NoGradGuard no_grad;
      input = at::empty_strided(input.sizes(), input.strides(), input.options()).copy_(input);
    }
    return elsewhere;
  }

  // Where each buffer lies for as long as the executable lives, as far as that is known now.
  std::vector<void*> addresses() {
    const Program& program = *plan_.program;
    std::vector<void*> addresses(program.buffers.size(), nullptr);
    for (std::size_t b = 0; b < addresses.size(); ++b) addresses[b] = program.buffers[b].where_it_lies();
    for (std::size_t i = 0; i < plan_.memory.buffers.size(); ++i) {
      addresses[plan_.memory.buffers[i].index()] = arena_->data() + plan_.schedule.memory.offsets[i];
    }
    if (options_.alias_outputs) {
      for (std::uint32_t b = 0; b < addresses.size(); ++b) {
        const Buffer& buffer = program.buffers[b];
        if (addresses[b] || buffer.kind != BufferKind::kInternal || buffer.bytes == 0) continue;
        aliased_.emplace_back(BufferId{b}, c10::GetCPUAllocator()->allocate(buffer.bytes));
        addresses[b] = aliased_.back().second.get();
      }
    }
    return addresses;
  }

  // A result that was made with torch.empty and filled afterwards has no task that allocates it.
  void find_results_without_maker() {
    const Program& program = *plan_.program;
    std::vector<bool> made(program.buffers.size());
    for (const Task& task : program.tasks) {
      for (const Allocation& allocation : task.allocations) made[allocation.buffer.index()] = true;
    }
    for (std::uint32_t b = 0; b < program.buffers.size(); ++b) {
      const Buffer& buffer = program.buffers[b];
      if (buffer.kind == BufferKind::kInternal && buffer.returned && !made[b] &&
          !bound_.address(BufferId{b})) {
        without_maker_.push_back(BufferId{b});
      }
    }
  }
  void make_results_without_maker() {
    for (const BufferId id : without_maker_) {
      const auto bytes = static_cast<std::int64_t>(plan_.program->buffer(id).bytes);
      bound_.give(id, at::empty({bytes}, at::kByte).storage());
    }
  }

  // Memory that PyTorch's allocator gave to this replay goes to the caller as it is; what must not be shared
  // is copied.
  c10::Storage result_storage(BufferId id) const {
    if (bound_.given(id)) return bound_.given(id);
    const Buffer& buffer = plan_.program->buffer(id);
    const c10::Storage& own = bound_.storage_of(id);
    const bool shared = buffer.kind == BufferKind::kConstant || buffer.kind == BufferKind::kEscaped;
    if (!shared || options_.alias_outputs) return own;
    c10::Storage copy = at::empty({static_cast<std::int64_t>(own.nbytes())}, at::kByte).storage();
    std::memcpy(copy.mutable_data(), own.data(), own.nbytes());
    return copy;
  }

  void refuse_after_fork() const {
    if (fork_generation() == generation_) return;
    throw Error(
        "[nimble::replay] this function was compiled before the process forked; threads and schedules do not "
        "survive a fork. Compile it in the child, or start the child with the 'spawn' method");
  }

  void run_streams() {
    ++round_;
    failed_.store(false);
    unplanned_.store(0);
    if (plan_.schedule.streams.empty()) return;  // a program without tasks: its results are its inputs
    if (!workers_) {
      // The caller's own setting is what the schedule was measured with, unless it asked for another.
      std::optional<IntraOpThreadsGuard> threads;
      if (threads_ != intra_op_threads()) threads.emplace(threads_);
      run_stream(0);
    } else {
      const IntraOpThreadsGuard threads(threads_);
      workers_->run([this](std::size_t stream) { run_stream(stream); });
    }
    if (failed_.load()) {
      bound_.release_given();
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }

  void run_stream(std::size_t stream) noexcept {
    BoundProgram::Lane lane;
    for (const Step& step : plan_.schedule.streams[stream]) {
      std::visit(
          Overloaded{[&](const Run& run) { run_task(run.task, stream, lane); },
                     [&](const RecordEvent& record) { events_[record.event.index()].raise_to(round_); },
                     [&](const WaitEvent& wait) { events_[wait.event.index()].wait_for(round_); }},
          step);
    }
    unplanned_.fetch_add(lane.unplanned());
  }

  // After a failure the other streams still go through their steps, so that nobody waits for ever, but run
  // nothing.
  void run_task(TaskId task, std::size_t stream, BoundProgram::Lane& lane) noexcept {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      if (options_.before_task) options_.before_task(task);
      const Nanoseconds start = stopwatch_ ? stopwatch_->now() : 0;
      random_.before(task);
      bound_.run(task, lane);
      random_.after(task);
      if (stopwatch_) {
        stopwatch_->spans[task.index()] = {StreamId{static_cast<std::uint32_t>(stream)}, start,
                                           stopwatch_->now()};
      }
    } catch (...) {
      const std::lock_guard lock(failure_mutex_);
      if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
  }

  ExecutionPlan plan_;
  BindOptions options_;
  int threads_;
  std::shared_ptr<Arena> arena_;
  std::vector<std::pair<BufferId, at::DataPtr>> aliased_;  // memory of shared results, until they own it
  BoundProgram bound_;
  OutputPlan outputs_;
  RandomPositions random_;
  std::vector<BufferId> without_maker_;
  std::vector<Event> events_;
  std::optional<StreamWorkers> workers_;
  std::optional<Stopwatch> stopwatch_;  // while a timeline is measured
  int generation_;
  std::uint64_t round_ = 0;
  std::atomic<std::uint64_t> unplanned_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<Executable> make_cpu_executable(ExecutionPlan plan, const BindOptions& options) {
  return std::make_unique<CpuExecutable>(std::move(plan), options);
}

}  // namespace nimble::cpu
