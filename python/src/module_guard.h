#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "nimble/engine/host.h"

namespace nimble::python {

// Notices that something a recording depends on was replaced: an entry of a dictionary (a module's parameter, its
// training flag, a global) or the content of a closure's cell is another object than it was, or a dictionary of hooks
// or submodules has grown or shrunk. Where Python counts the changes of a dictionary, one that has not changed is not
// looked into: a nanosecond or two for each dictionary, some tens for each entry otherwise.
class ModuleGuard final : public OutsideGuard {
 public:
  // `entries` are (dictionary, key, object), `cells` are (cell, object), `sizes` are (dictionary, size); `escapes` are
  // (dictionary, key, tensor): where a replay puts its tensors back.
  ModuleGuard(const pybind11::list& entries, const pybind11::list& cells, const pybind11::list& sizes,
              const pybind11::list& escapes);
  ~ModuleGuard() override;

  bool holds() override;
  std::vector<Kept> kept() override;
  void put_back() override;

 private:
  bool unchanged() const;  // as far as Python's own counters tell
  void remember_versions();
  bool everything_is_in_place() const;

  struct DictEntry {
    PyObject *dict, *key, *value;
  };
  struct Cell {
    PyObject *cell, *value;
  };
  struct Size {
    PyObject* dict;
    Py_ssize_t size;
  };
  std::vector<DictEntry> entries_, escapes_;
  std::vector<Cell> cells_;
  std::vector<Size> sizes_;
  std::vector<std::pair<PyObject*, std::uint64_t>> versions_;  // of every dictionary above, when all was in place
  std::vector<PyObject*> owned_;  // keeps every object above alive
};

}  // namespace nimble::python
