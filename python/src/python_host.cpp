#include "python_host.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "module_guard.h"

namespace nimble::python {
namespace py = pybind11;

// The Python object holds this call's arguments itself, in the form the user gave them.
Tensors PythonHost::run(const Tensors&, const Pauses* pauses) {
  const py::gil_scoped_acquire gil;
  if (!pauses) return host_.attr("run")().cast<Tensors>();
  using Release = py::call_guard<py::gil_scoped_release>;
  return host_
      .attr("run")(py::cpp_function(pauses->before, Release()), py::cpp_function(pauses->after, Release()))
      .cast<Tensors>();
}

Tensors PythonHost::record(const Tensors&, ProgramBuilder& builder) {
  const py::gil_scoped_acquire gil;
  return host_.attr("record")(py::cast(&builder, py::return_value_policy::reference)).cast<Tensors>();
}

void PythonHost::record_backward(ProgramBuilder& builder, const std::function<void()>& backward) {
  const py::gil_scoped_acquire gil;
  // Autograd must not be entered with Python's lock: its threads take it themselves.
  host_.attr("record_backward")(py::cast(&builder, py::return_value_policy::reference),
                                py::cpp_function(backward, py::call_guard<py::gil_scoped_release>()));
}

Tensors PythonHost::outside() {
  const py::gil_scoped_acquire gil;
  return host_.attr("outside")().cast<Tensors>();
}

Tensors PythonHost::kept(std::span<const c10::Storage> escaped) {
  const py::gil_scoped_acquire gil;
  py::set addresses;
  for (const c10::Storage& storage : escaped) {
    addresses.add(reinterpret_cast<std::uintptr_t>(storage.unsafeGetStorageImpl()));
  }
  return host_.attr("kept")(addresses).cast<Tensors>();
}

std::shared_ptr<HostNote> PythonHost::note() {
  const py::gil_scoped_acquire gil;
  return std::make_shared<StructureNote>(host_.attr("structure"));
}

std::unique_ptr<OutsideGuard> PythonHost::watch(const Program& program) {
  const py::gil_scoped_acquire gil;
  py::list outside;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.kind == BufferKind::kExternal) outside.append(buffer.outside);
  }
  const py::tuple places = host_.attr("watch")(outside);
  return std::make_unique<ModuleGuard>(places[0].cast<py::list>(), places[1].cast<py::list>(),
                                       places[2].cast<py::list>(), places[3].cast<py::list>(),
                                       places[4].cast<py::list>());
}

bool PythonHost::take_over(std::size_t step) {
  const py::gil_scoped_acquire gil;
  return host_.attr("take_over")(step).cast<bool>();
}

void PythonHost::warn(const std::string& text) {
  const py::gil_scoped_acquire gil;
  host_.attr("warn")(text);
}

void PythonHost::log(const std::string& text) {
  const py::gil_scoped_acquire gil;
  host_.attr("log")(text);
}

}  // namespace nimble::python
