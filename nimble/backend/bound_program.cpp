#include "nimble/backend/bound_program.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <unordered_set>

#include "nimble/torch/bind_operand.h"
#include "nimble/torch/operator_facts.h"

namespace nimble {

namespace {

// PyTorch's own kernels take Tensor?[] as a list and all others as a view of its elements. What kernels from
// elsewhere take is up to them.
bool hands_over_list(const c10::OperatorHandle& op, const c10::IValue& argument) {
  if (!argument.isList()) return false;
  const bool of_optionals = argument.toList().elementType()->kind() == c10::TypeKind::OptionalType;
  return of_optionals || op.operator_name().getNamespace() != "aten";
}

using Owner = std::shared_ptr<void>;

// A pointer into memory that lives as long as one of those who share it.
at::DataPtr sharing(const Owner& owner, void* data, c10::Device device) {
  return {data, new Owner(owner), [](void* context) { delete static_cast<Owner*>(context); }, device};
}

// Whatever watches operators on this thread (a recording during which the garbage collector runs) does not
// see it.
void copy_bytes(void* to, const void* from, std::size_t size, c10::Device device) {
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard unwatched(c10::DispatchKeySet(
      {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
       c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
  const auto bytes_at = [&](void* data) {
    return at::from_blob(data, {static_cast<std::int64_t>(size)}, at::device(device).dtype(at::kByte));
  };
  bytes_at(to).copy_(bytes_at(const_cast<void*>(from)));
}

}  // namespace

// Answers the allocations of the task that is running. Matched by size in recorded order, so that an
// allocation that does not happen again (a cache that is warm by now) does not shift the others.
class BoundProgram::Server final : public AllocationHook {
 public:
  struct Planned {
    std::size_t bytes;
    c10::Device device;
    void* address;  // nullptr: a result that PyTorch's own allocator shall make
  };

  void begin(std::span<const Planned> planned) { planned_ = planned; }

  void* serve(std::size_t bytes, c10::Device device) override {
    for (std::size_t i = 0; i < planned_.size(); ++i) {
      if (planned_[i].bytes != bytes || planned_[i].device != device) continue;
      void* address = planned_[i].address;
      planned_ = planned_.subspan(i + 1);
      return address;
    }
    ++unplanned;
    return nullptr;
  }
  void allocated(void*, std::size_t, c10::Device) override {}
  void freed(void*) override {}

  std::uint64_t unplanned = 0;

 private:
  std::span<const Planned> planned_;
};

struct BoundProgram::BoundTask {
  c10::OperatorHandle op;
  torch::jit::Stack arguments;
  // Which arguments are lists that the operator is given itself, and not only a look at what is in them. It
  // may write other tensors into such a list (_unsafe_masked_index_put_accumulate does), so each run gets a
  // copy.
  std::vector<std::size_t> lists = {};
  std::vector<Server::Planned> allocations;
  ThreadState state;
  // Results in memory that this task makes; checked against the record and adopted where they lie elsewhere.
  struct Made {
    std::size_t result;                  // which of the operator's results
    std::optional<std::size_t> element;  // which tensor of a list
    TensorRef ref;
  };
  std::vector<Made> made;
};

struct BoundProgram::Lane::State {
  ThreadStateGuard thread_state;
  const ThreadState* entered = nullptr;
  torch::jit::Stack stack;
  Server server;
};

BoundProgram::Lane::Lane() : state_(std::make_unique<State>()) {}
BoundProgram::Lane::~Lane() = default;
std::uint64_t BoundProgram::Lane::unplanned() const { return state_->server.unplanned; }

BoundProgram::BoundProgram(std::shared_ptr<const Program> program, std::span<void* const> addresses,
                           std::shared_ptr<void> memory)
    : program_(std::move(program)),
      memory_(std::move(memory)),
      planned_(addresses.begin(), addresses.end()),
      owned_(planned_.size()),
      addresses_(planned_),
      given_(planned_.size()) {
  // Bound tensors are ordinary ones even if the binding happens under inference_mode.
  const c10::InferenceMode ordinary(false);
  for (std::size_t b = 0; b < program_->buffers.size(); ++b) {
    const Buffer& buffer = program_->buffers[b];
    if (buffer.outside.defined()) {
      storages_.push_back(buffer.outside.storage());
      const bool moves = buffer.kind == BufferKind::kEscaped && storages_[b].data() != addresses_[b];
      if (moves) move_in(BufferId{static_cast<std::uint32_t>(b)});
    } else {
      storages_.emplace_back(
          c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), buffer.bytes,
                                                at::DataPtr(addresses_[b], buffer.device), nullptr, false));
    }
  }
  for (std::uint32_t i = 0; i < program_->tasks.size(); ++i) {
    const Task& task = program_->tasks[i];
    BoundTask bound{.op = task.op, .arguments = {}, .allocations = {}, .state = task.state, .made = {}};
    bound.arguments = bind_arguments(task);
    for (std::size_t a = 0; a < bound.arguments.size(); ++a) {
      if (hands_over_list(task.op, bound.arguments[a])) bound.lists.push_back(a);
    }
    for (const Allocation& allocation : task.allocations) {
      bound.allocations.push_back({allocation.bytes, program_->buffer(allocation.buffer).device,
                                   addresses_[allocation.buffer.index()]});
    }
    std::unordered_set<BufferId> made_here;
    for (const TensorRef& ref : task.writes) made_here.insert(ref.buffer);
    for (const TensorRef& ref : task.reads) made_here.erase(ref.buffer);
    for (std::size_t r = 0; r < task.results.size(); ++r) {
      if (const auto* ref = std::get_if<TensorRef>(&task.results[r])) {
        if (made_here.contains(ref->buffer)) bound.made.push_back({r, std::nullopt, *ref});
      } else if (const auto* list = std::get_if<TensorRefList>(&task.results[r])) {
        for (std::size_t e = 0; e < list->refs.size(); ++e) {
          if (list->refs[e] && made_here.contains(list->refs[e]->buffer))
            bound.made.push_back({r, e, *list->refs[e]});
        }
      }
    }
    tasks_.push_back(std::move(bound));
  }

  // As eager code counts: what an operator writes without saying so (a batch norm's statistics) is no new
  // version.
  std::unordered_set<BufferId> written;
  for (const Task& task : program_->tasks) {
    std::unordered_set<BufferId> unannounced;
    for (std::size_t i = 0; i < task.arguments.size(); ++i) {
      if (!writes_argument_unannounced(task.op, i)) continue;
      for_each_ref(task.arguments[i], [&](const TensorRef& ref) { unannounced.insert(ref.buffer); });
    }
    for (const TensorRef& ref : task.writes) {
      if (!unannounced.contains(ref.buffer)) written.insert(ref.buffer);
    }
  }
  for (std::uint32_t b = 0; b < program_->buffers.size(); ++b) {
    const Buffer& buffer = program_->buffers[b];
    if (buffer.outside.defined() && written.contains(BufferId{b})) written_outside_.push_back(buffer.outside);
  }
  for (std::size_t i = 0; i < program_->inputs.size(); ++i) {
    if (written.contains(program_->inputs[i].buffer)) written_inputs_.push_back(i);
  }
}

BoundProgram::~BoundProgram() = default;

void BoundProgram::move_out_escaped() noexcept {
  try {
    for (const BufferId buffer : moved_in_) move_out(buffer);
  } catch (const std::exception&) {
    // Without memory, or without a device: whoever looks at them keeps our memory alive.
  }
}

void BoundProgram::move_in(BufferId buffer) {
  const c10::Storage& storage = storages_[buffer.index()];
  void* place = planned_[buffer.index()];
  copy_bytes(place, storage.data(), storage.nbytes(), storage.device());
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(sharing(memory_, place, storage.device()));
  moved_in_.push_back(buffer);
}

void BoundProgram::move_out(BufferId buffer) const {
  const c10::Storage& storage = storages_[buffer.index()];
  if (storage.data() != planned_[buffer.index()]) return;  // it is gone already
  const c10::DeviceGuard on_device(storage.device());
  at::DataPtr own = c10::GetAllocator(storage.device_type())->allocate(storage.nbytes());
  copy_bytes(own.get(), storage.data(), storage.nbytes(), storage.device());
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(own));
}

void BoundProgram::take_back_escaped() {
  for (const BufferId buffer : moved_in_) {
    const c10::Storage& storage = storages_[buffer.index()];
    void* place = planned_[buffer.index()];
    if (storage.data() != place)
      storage.unsafeGetStorageImpl()->set_data_ptr_noswap(sharing(memory_, place, storage.device()));
  }
}

torch::jit::Stack BoundProgram::bind_arguments(const Task& task) const {
  std::vector<at::Tensor> made;
  const auto bind = [&](const TensorRef& ref) {
    const std::size_t twin = task.twins[made.size()];
    made.push_back(twin < made.size() ? made[twin] : materialize(ref, storages_[ref.buffer.index()]));
    return made.back();
  };
  torch::jit::Stack arguments;
  for (const Operand& operand : task.arguments) arguments.push_back(bind_operand(operand, bind));
  return arguments;
}

void BoundProgram::point(BufferId buffer, void* data) {
  addresses_[buffer.index()] = data;
  const c10::Storage& storage = storages_[buffer.index()];
  const auto& owned = owned_[buffer.index()];
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(owned && owned->get() == data
                                                          ? sharing(owned, data, storage.device())
                                                          : at::DataPtr(data, storage.device()));
}

void BoundProgram::own(BufferId buffer, at::DataPtr memory) {
  owned_[buffer.index()] = std::make_shared<at::DataPtr>(std::move(memory));
  planned_[buffer.index()] = owned_[buffer.index()]->get();
  point(buffer, planned_[buffer.index()]);
}

void BoundProgram::run(TaskId id, Lane& lane) {
  BoundTask& task = tasks_[id.index()];
  Lane::State& state = *lane.state_;
  if (!state.entered || !(*state.entered == task.state)) {
    state.thread_state.enter(task.state);
    state.entered = &task.state;
  }
  state.stack.assign(task.arguments.begin(), task.arguments.end());
  for (const std::size_t list : task.lists) state.stack[list] = state.stack[list].toList().copy();
  state.server.begin(task.allocations);
  {
    const AllocationHookGuard serving(&state.server);
    task.op.callBoxed(&state.stack);
  }
  for (const auto& made : task.made) {
    const c10::IValue& result = state.stack[made.result];
    adopt(made.ref, made.element ? result.toListRef()[*made.element].toTensor() : result.toTensor(), id);
  }
  state.stack.clear();
}

void BoundProgram::adopt(const TensorRef& expected, const at::Tensor& result, TaskId task) {
  if (result.sizes() != at::IntArrayRef(expected.sizes) ||
      result.strides() != at::IntArrayRef(expected.strides) || result.scalar_type() != expected.dtype) {
    throw Error("[nimble::replay] " + task_name(*program_, task) +
                " gave another shape than when it was recorded (" +
                to_string(describe(result, expected.buffer)) + " instead of " + to_string(expected) + ")");
  }
  const std::size_t b = expected.buffer.index();
  const void* data = result.storage().data();
  if (data == addresses_[b]) return;
  if (result.device() != storages_[b].device()) return rebind(expected.buffer, result.storage());
  // The task asked for other memory than when it was recorded (a library found another kernel), so this
  // result lies elsewhere: in memory of its own, which is as good, or in what was planned for something else
  // of this task, which others use next. A tensor that lives outside can only be where it is.
  const auto& planned = tasks_[task.index()].allocations;
  const bool on_borrowed_memory =
      std::any_of(planned.begin(), planned.end(), [&](const auto& other) { return other.address == data; });
  if (planned_[b] && (on_borrowed_memory || program_->buffer(expected.buffer).outside.defined())) {
    // A storage that lives outside is there already, and pointing it anywhere would end its memory.
    if (addresses_[b] != planned_[b]) point(expected.buffer, planned_[b]);
    materialize(expected, storages_[b]).copy_(result);
  } else {
    give(expected.buffer,
         on_borrowed_memory ? all_bytes_of(result.storage()).clone().storage() : result.storage());
  }
}

void BoundProgram::rebind(BufferId buffer, const c10::Storage& storage) {
  const c10::InferenceMode ordinary(false);
  storages_[buffer.index()] = storage;
  addresses_[buffer.index()] = storage.mutable_data();
  for (std::size_t t = 0; t < tasks_.size(); ++t) {
    bool uses_it = false;
    for (const TensorRef& ref : program_->tasks[t].reads) uses_it |= ref.buffer == buffer;
    if (uses_it) tasks_[t].arguments = bind_arguments(program_->tasks[t]);
  }
}

void BoundProgram::give(BufferId buffer, c10::Storage storage) {
  point(buffer, storage.mutable_data());
  given_[buffer.index()] = std::move(storage);
}

void BoundProgram::release_given() {
  for (std::uint32_t b = 0; b < given_.size(); ++b) {
    if (!given_[b]) continue;
    given_[b] = {};
    point(BufferId{b}, planned_[b]);
  }
}

void BoundProgram::bump_versions(std::span<const at::Tensor> inputs) const {
  const auto bump = [](const at::Tensor& tensor) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  };
  for (const at::Tensor& tensor : written_outside_) bump(tensor);
  for (const std::size_t input : written_inputs_) bump(inputs[input]);
}

void point_inputs(BoundProgram& bound, std::span<const at::Tensor> inputs) {
  const Program& program = bound.program();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorRef& recorded = program.inputs[i];
    if (program.buffer(recorded.buffer).kind != BufferKind::kInput) continue;
    const auto shift = recorded.offset * static_cast<std::int64_t>(c10::elementSize(recorded.dtype));
    bound.point(recorded.buffer, static_cast<char*>(inputs[i].mutable_data_ptr()) - shift);
  }
}

}  // namespace nimble
