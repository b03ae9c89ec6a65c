#include "operator_call.h"

#include <torch/csrc/jit/python/pybind_utils.h>

#include <unordered_map>

#include "nimble/torch/dispatch_mode.h"

namespace nimble::python {
namespace py = pybind11;
namespace {

// Overload objects live as long as the process, so the object itself is a good key. Guarded by Python's lock.
const c10::OperatorHandle& handle_of(const py::object& func) {
  static auto* handles = new std::unordered_map<PyObject*, c10::OperatorHandle>;
  const auto found = handles->find(func.ptr());
  if (found != handles->end()) return found->second;
  const auto schema = func.attr("_schema").cast<c10::FunctionSchema>();
  const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow(schema.name().c_str(), schema.overload_name().c_str());
  func.inc_ref();
  return handles->emplace(func.ptr(), handle).first->second;
}

}  // namespace

py::object call_operator(ProgramBuilder& builder, const py::object& func, const py::tuple& args,
                         const py::dict& kwargs, std::string where) {
  const c10::OperatorHandle& op = handle_of(func);
  // PyTorch shows numbers that stand for tensors as plain numbers; here they become such tensors again.
  const torch::jit::ToIValueAllowNumbersAsTensors allow(true);
  torch::jit::Stack stack = torch::jit::createStackForSchema(
      op.schema(), torch::jit::tuple_slice(args), py::reinterpret_borrow<py::kwargs>(kwargs), std::nullopt);
  if (is_composite(op, stack)) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
  {
    const py::gil_scoped_release release;
    builder.call(op, &stack, std::move(where));
  }
  return torch::jit::createPyObjectForStack(std::move(stack));
}

}  // namespace nimble::python
