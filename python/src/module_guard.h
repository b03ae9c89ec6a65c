#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <vector>

#include "dict_changes.h"
#include "nimble/engine/host.h"

namespace nimble::python {

// Notices that something a recording depends on was replaced: an entry of a dictionary (a module's parameter,
// its training flag, a global) or the content of a closure's cell is another object than it was, or a
// dictionary of hooks or submodules, or a list of parameters, has grown or shrunk. A number counts as
// replaced only if its value changed (a scheduler writes the same learning rate again and again). A
// dictionary that has not changed is not looked into.
class ModuleGuard final : public OutsideGuard {
 public:
  // `entries` are (dictionary, key, object), `cells` are (cell, object), `sizes` are (collection, size);
  // `escapes` are (dictionary, key, tensor): where a replay puts its tensors back; `steps` are (name,
  // callable): what the host does between the parts of a replay.
  ModuleGuard(const pybind11::list& entries, const pybind11::list& cells, const pybind11::list& sizes,
              const pybind11::list& escapes, const pybind11::list& steps);
  ~ModuleGuard() override;

  bool holds() override;
  std::vector<Kept> kept() override;
  void put_back() override;
  void host_step(std::size_t pause) override;
  std::string name_of_step(std::size_t pause) const override { return steps_[pause].name; }

 private:
  struct DictEntry {
    PyObject *dict, *key, *value;
  };
  struct Dict {
    PyObject* dict;
    Py_ssize_t size = -1;            // negative where that does not matter
    std::size_t first = 0, end = 0;  // of its entries
  };
  bool is_in_place(const Dict& dict) const;

  struct Cell {
    PyObject *cell, *value;
  };
  struct Size {
    PyObject* collection;
    Py_ssize_t size;
  };
  struct Step {
    std::string name;
    PyObject* callable;
  };
  std::vector<Dict> dicts_;
  std::optional<DictChanges> changes_;  // of them
  std::vector<DictEntry> entries_;      // by dictionary
  std::vector<DictEntry> escapes_;
  std::vector<Cell> cells_;
  std::vector<Size> sizes_;  // of other collections than dictionaries
  std::vector<Step> steps_;
  std::vector<PyObject*> owned_;  // keeps every object above alive
};

}  // namespace nimble::python
