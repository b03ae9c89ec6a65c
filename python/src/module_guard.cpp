#include "module_guard.h"

#include <torch/csrc/autograd/python_variable.h>

#include <unordered_set>

namespace nimble::python {
namespace py = pybind11;
namespace {

#if PY_VERSION_HEX < 0x030D0000
constexpr bool kPythonCountsChanges = true;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
std::uint64_t version_of(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }
#pragma GCC diagnostic pop
#else
constexpr bool kPythonCountsChanges = false;
std::uint64_t version_of(PyObject*) { return 0; }
#endif

bool is_number(PyObject* object) { return PyFloat_CheckExact(object) || PyLong_CheckExact(object); }

bool is_same(PyObject* now, PyObject* recorded) {
  if (now == recorded) return true;
  if (!now || !is_number(recorded) || Py_TYPE(now) != Py_TYPE(recorded)) return false;
  return PyObject_RichCompareBool(now, recorded, Py_EQ) == 1;
}

}  // namespace

ModuleGuard::ModuleGuard(const py::list& entries, const py::list& cells, const py::list& sizes,
                         const py::list& escapes, const py::list& steps) {
  const auto own = [&](const py::handle& object) {
    object.inc_ref();
    owned_.push_back(object.ptr());
    return object.ptr();
  };
  const auto dict_entry = [&](const py::handle& item) {
    const auto parts = item.cast<py::tuple>();
    return DictEntry{own(parts[0]), own(parts[1]), own(parts[2])};
  };
  for (const py::handle item : entries) entries_.push_back(dict_entry(item));
  for (const py::handle item : escapes) escapes_.push_back(dict_entry(item));
  for (const py::handle item : cells) {
    const auto parts = item.cast<py::tuple>();
    cells_.push_back({own(parts[0]), own(parts[1])});
  }
  for (const py::handle item : sizes) {
    const auto parts = item.cast<py::tuple>();
    sizes_.push_back({own(parts[0]), parts[1].cast<Py_ssize_t>()});
  }
  for (const py::handle item : steps) {
    const auto parts = item.cast<py::tuple>();
    steps_.push_back({parts[0].cast<std::string>(), own(parts[1])});
  }
  std::unordered_set<PyObject*> dicts;
  for (const DictEntry& entry : entries_) dicts.insert(entry.dict);
  for (const Size& size : sizes_) {
    if (PyDict_Check(size.collection)) dicts.insert(size.collection);
  }
  for (PyObject* dict : dicts) versions_.emplace_back(dict, 0);
}

ModuleGuard::~ModuleGuard() {
  const py::gil_scoped_acquire gil;
  for (PyObject* object : owned_) Py_DECREF(object);
}

bool ModuleGuard::holds() {
  const py::gil_scoped_acquire gil;
  for (const Cell& cell : cells_) {
    if (PyCell_GET(cell.cell) != cell.value) return false;
  }
  for (const Size& size : sizes_) {
    if (!PyDict_Check(size.collection) && PyObject_Size(size.collection) != size.size) return false;
  }
  if (unchanged()) return true;
  if (!everything_is_in_place()) return false;
  remember_versions();
  return true;
}

bool ModuleGuard::unchanged() const {
  if (!kPythonCountsChanges) return false;
  for (const auto& [dict, version] : versions_) {
    if (version_of(dict) != version) return false;
  }
  return true;
}

void ModuleGuard::remember_versions() {
  for (auto& [dict, version] : versions_) version = version_of(dict);
}

bool ModuleGuard::everything_is_in_place() const {
  for (const DictEntry& entry : entries_) {
    if (!is_same(PyDict_GetItem(entry.dict, entry.key), entry.value)) return false;
  }
  for (const Size& size : sizes_) {
    if (PyObject_Size(size.collection) != size.size) return false;
  }
  return true;
}

std::vector<OutsideGuard::Kept> ModuleGuard::kept() {
  const py::gil_scoped_acquire gil;
  std::vector<Kept> kept;
  for (const DictEntry& place : escapes_) {
    PyObject* now = PyDict_GetItem(place.dict, place.key);
    kept.push_back({THPVariable_Unpack(place.value),
                    now && THPVariable_Check(now) ? THPVariable_Unpack(now) : at::Tensor()});
  }
  return kept;
}

void ModuleGuard::host_step(std::size_t pause) {
  const py::gil_scoped_acquire gil;
  py::reinterpret_borrow<py::object>(steps_[pause].callable)();
}

void ModuleGuard::put_back() {
  if (escapes_.empty()) return;
  const py::gil_scoped_acquire gil;
  for (const DictEntry& place : escapes_) {
    if (PyDict_SetItem(place.dict, place.key, place.value) != 0) throw py::error_already_set();
  }
}

}  // namespace nimble::python
