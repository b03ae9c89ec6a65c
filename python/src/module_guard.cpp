#include "module_guard.h"

namespace nimble::python {
namespace py = pybind11;

ModuleGuard::ModuleGuard(const py::list& entries, const py::list& cells, const py::list& sizes,
                         const py::list& escapes) {
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
}

ModuleGuard::~ModuleGuard() {
  const py::gil_scoped_acquire gil;
  for (PyObject* object : owned_) Py_DECREF(object);
}

bool ModuleGuard::holds() {
  const py::gil_scoped_acquire gil;
  for (const DictEntry& entry : entries_) {
    if (PyDict_GetItem(entry.dict, entry.key) != entry.value) return false;
  }
  for (const Cell& cell : cells_) {
    if (PyCell_GET(cell.cell) != cell.value) return false;
  }
  for (const Size& size : sizes_) {
    if (PyDict_GET_SIZE(size.dict) != size.size) return false;
  }
  return true;
}

void ModuleGuard::put_back() {
  if (escapes_.empty()) return;
  const py::gil_scoped_acquire gil;
  for (const DictEntry& place : escapes_) {
    if (PyDict_SetItem(place.dict, place.key, place.value) != 0) throw py::error_already_set();
  }
}

}  // namespace nimble::python
