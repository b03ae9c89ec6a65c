#include "nimble/torch/dispatch_mode.h"

#include <ATen/ATen.h>
#include <c10/core/impl/PyInterpreter.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

namespace nimble {
namespace {

using c10::impl::PyObject_TorchDispatchMode;
using c10::impl::TorchDispatchModeTLS;

// Takes the innermost mode off the stack for a while, so that a call inside is not seen again.
class ModeInactive {
 public:
  ModeInactive() : mode_(TorchDispatchModeTLS::pop_stack()) {}
  ~ModeInactive() { TorchDispatchModeTLS::push_non_infra_mode_onto_stack(mode_); }
  ModeInactive(const ModeInactive&) = delete;
  ModeInactive& operator=(const ModeInactive&) = delete;

  ProgramBuilder& builder(c10::impl::PyInterpreter* interpreter) const {
    return *reinterpret_cast<ProgramBuilder*>(mode_->ptr(interpreter));
  }

 private:
  std::shared_ptr<PyObject_TorchDispatchMode> mode_;
};

c10::impl::PyInterpreter* recording_interpreter();

[[noreturn]] void not_for_recording(const char* what) {
  throw Error(std::string("[nimble::record] ") + what +
              " reached the recorder, which handles operator calls only");
}

// PyTorch lets a dispatch mode come with the interpreter it was written for; this one is written in C++. The
// mode object that PyTorch carries around for us is the ProgramBuilder itself, behind the opaque type
// PyObject.
struct RecordingInterpreter final : c10::impl::PyInterpreterVTable {
  std::string name() const override { return "nimble"; }

  void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack) const override {
    if (is_composite(op, *stack)) return call_composite(op, stack);
    const ModeInactive inactive;
    inactive.builder(recording_interpreter()).call(op, stack);
  }
  c10::intrusive_ptr<c10::TensorImpl> detach(const c10::TensorImpl* self) const override {
    const ModeInactive inactive;
    return self->shallow_copy_and_detach(self->version_counter(), self->allow_tensor_metadata_change());
  }

  void incref(PyObject*) const override {}
  void decref(PyObject*) const override {}
  bool try_incref(const c10::impl::PyObjectSlot&) const override { return false; }
  std::size_t refcnt(PyObject*) const override { return 1; }
  void reportErrorCallback(PyObject*, c10::DispatchKey) const override {}
  void reset_backward_hooks(const c10::TensorImpl*) const override {}

  void python_op_registration_trampoline(const c10::OperatorHandle&, c10::DispatchKey, c10::DispatchKeySet,
                                         torch::jit::Stack*, bool, bool) const override {
    not_for_recording("an operator registered from Python");
  }
  void throw_abstract_impl_not_imported_error(std::string op, const char*, const char*) const override {
    not_for_recording(op.c_str());
  }
  void python_dispatcher(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*) const override {
    not_for_recording("the Python dispatcher");
  }

  // Only tensors that are Python subclasses ask these.
  bool is_contiguous(const c10::TensorImpl*, at::MemoryFormat) const override {
    not_for_recording("is_contiguous");
  }
  c10::SymBool sym_is_contiguous(const c10::TensorImpl*, at::MemoryFormat) const override {
    not_for_recording("sym_is_contiguous");
  }
  bool is_strides_like(const c10::TensorImpl*, at::MemoryFormat) const override {
    not_for_recording("is_strides_like");
  }
  bool is_non_overlapping_and_dense(const c10::TensorImpl*) const override {
    not_for_recording("is_non_overlapping_and_dense");
  }
  c10::Device device(const c10::TensorImpl*) const override { not_for_recording("device"); }
  std::int64_t dim(const c10::TensorImpl*) const override { not_for_recording("dim"); }
  c10::IntArrayRef strides(const c10::TensorImpl*) const override { not_for_recording("strides"); }
  c10::IntArrayRef sizes(const c10::TensorImpl*) const override { not_for_recording("sizes"); }
  c10::SymIntArrayRef sym_sizes(const c10::TensorImpl*) const override { not_for_recording("sym_sizes"); }
  c10::Layout layout(const c10::TensorImpl*) const override { not_for_recording("layout"); }
  std::int64_t numel(const c10::TensorImpl*) const override { not_for_recording("numel"); }
  c10::SymInt sym_numel(const c10::TensorImpl*) const override { not_for_recording("sym_numel"); }
  c10::SymIntArrayRef sym_strides(const c10::TensorImpl*) const override { not_for_recording("sym_strides"); }
  c10::SymInt sym_storage_offset(const c10::TensorImpl*) const override {
    not_for_recording("sym_storage_offset");
  }

  void trace_gpu_event_creation(c10::DeviceType, std::uintptr_t) const override {}
  void trace_gpu_event_deletion(c10::DeviceType, std::uintptr_t) const override {}
  void trace_gpu_event_record(c10::DeviceType, std::uintptr_t, std::uintptr_t) const override {}
  void trace_gpu_event_wait(c10::DeviceType, std::uintptr_t, std::uintptr_t) const override {}
  void trace_gpu_memory_allocation(c10::DeviceType, std::uintptr_t) const override {}
  void trace_gpu_memory_deallocation(c10::DeviceType, std::uintptr_t) const override {}
  void trace_gpu_stream_creation(c10::DeviceType, std::uintptr_t) const override {}
  void trace_gpu_device_synchronization(c10::DeviceType) const override {}
  void trace_gpu_stream_synchronization(c10::DeviceType, std::uintptr_t) const override {}
  void trace_gpu_event_synchronization(c10::DeviceType, std::uintptr_t) const override {}
};

// Never destroyed: PyTorch may ask a mode's interpreter until the very end of the process.
c10::impl::PyInterpreter* recording_interpreter() {
  static auto* interpreter = new c10::impl::PyInterpreter(new RecordingInterpreter);
  return interpreter;
}

}  // namespace

DispatchModeGuard::DispatchModeGuard(ProgramBuilder& builder) {
  TorchDispatchModeTLS::push_non_infra_mode_onto_stack(std::make_shared<PyObject_TorchDispatchMode>(
      reinterpret_cast<PyObject*>(&builder), recording_interpreter()));
}
DispatchModeGuard::~DispatchModeGuard() { TorchDispatchModeTLS::pop_stack(); }

bool is_composite(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) return false;
  bool on_cuda = false;
  for (const auto& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isTensor() && value.toTensor().defined()) on_cuda |= value.toTensor().is_cuda();
  }
  return !op.hasKernelForDispatchKey(on_cuda ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);
}

void call_composite(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  // Views of parameters require grad in eager code, also in inference mode, and products ask for that. What
  // marks its results as views itself, a chunk, must find none marked.
  constexpr auto views = c10::DispatchKey::ADInplaceOrView;
  auto keys = c10::impl::tls_local_dispatch_key_set();
  if (!op.hasKernelForDispatchKey(views)) keys.excluded_ = keys.excluded_.remove(views);
  const c10::impl::ForceDispatchKeyGuard guard(keys);
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
}

}  // namespace nimble
