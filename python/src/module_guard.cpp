#include "module_guard.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <functional>
#include <map>

namespace nimble::python {
namespace py = pybind11;
namespace {

bool is_number(PyObject* object) { return PyFloat_CheckExact(object) || PyLong_CheckExact(object); }

// None stands for what was not there.
bool is_same(PyObject* now, PyObject* recorded) {
  if (now == recorded || (!now && recorded == Py_None)) return true;
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
  std::map<PyObject*, Dict> dicts;
  const auto watched = [&](PyObject* dict) -> Dict& {
    return dicts.try_emplace(dict, Dict{dict}).first->second;
  };
  for (const DictEntry& entry : entries_) watched(entry.dict);
  for (const py::handle item : sizes) {
    const auto parts = item.cast<py::tuple>();
    PyObject* collection = own(parts[0]);
    const auto size = parts[1].cast<Py_ssize_t>();
    if (PyDict_Check(collection)) {
      watched(collection).size = size;
    } else {
      sizes_.push_back({collection, size});
    }
  }
  for (const py::handle item : steps) {
    const auto parts = item.cast<py::tuple>();
    steps_.push_back({parts[0].cast<std::string>(), own(parts[1])});
  }
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const DictEntry& a, const DictEntry& b) { return std::less<>()(a.dict, b.dict); });
  for (auto& [object, dict] : dicts) {  // in the same order
    dict.first = dicts_.empty() ? 0 : dicts_.back().end;
    dict.end = dict.first;
    while (dict.end < entries_.size() && entries_[dict.end].dict == object) ++dict.end;
    dicts_.push_back(dict);
  }
  std::vector<PyObject*> objects;
  for (const Dict& dict : dicts_) objects.push_back(dict.dict);
  changes_.emplace(std::move(objects));
}

ModuleGuard::~ModuleGuard() {
  const py::gil_scoped_acquire gil;
  changes_.reset();
  for (PyObject* object : owned_) Py_DECREF(object);
}

bool ModuleGuard::holds() {
  const py::gil_scoped_acquire gil;
  for (const Cell& cell : cells_) {
    if (PyCell_GET(cell.cell) != cell.value) return false;
  }
  for (const Size& size : sizes_) {
    if (const Py_ssize_t now = PyObject_Size(size.collection); now != size.size) {
      if (now < 0) PyErr_Clear();
      return false;
    }
  }
  return changes_->all_in_place([&](std::size_t dict) { return is_in_place(dicts_[dict]); });
}

bool ModuleGuard::is_in_place(const Dict& dict) const {
  if (dict.size >= 0 && PyDict_Size(dict.dict) != dict.size) return false;
  return std::all_of(entries_.begin() + static_cast<std::ptrdiff_t>(dict.first),
                     entries_.begin() + static_cast<std::ptrdiff_t>(dict.end), [](const DictEntry& entry) {
                       return is_same(PyDict_GetItem(entry.dict, entry.key), entry.value);
                     });
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
