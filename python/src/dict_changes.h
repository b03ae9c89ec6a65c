#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace nimble::python {

// Tells which of some dictionaries may have changed, so that those that have not need not be looked into.
// From 3.12 on Python says so when a dictionary changes, and asking costs nothing; before, it counts the
// changes of each, and asking costs a few nanoseconds for each dictionary.
class DictChanges {
 public:
  // Of dictionaries that live longer than this. Everything has changed at first.
  explicit DictChanges(std::vector<PyObject*> dicts);
  ~DictChanges();
  DictChanges(const DictChanges&) = delete;
  DictChanges& operator=(const DictChanges&) = delete;

  // Whether each dictionary that may have changed, by its index, is still in place; one that is counts as
  // unchanged from then on.
  bool all_in_place(const std::function<bool(std::size_t)>& is_in_place);

 private:
  std::vector<PyObject*> dicts_;
#if PY_VERSION_HEX >= 0x030C0000
  friend struct Watchers;
  void mark(std::size_t dict);

  std::vector<std::size_t> changed_;
  std::vector<bool> is_changed_;
  bool is_told_ = true;  // else Python has no watcher left for us, and everything may have changed
#else
  std::vector<std::uint64_t> versions_;  // of each when it was in place
#endif
};

}  // namespace nimble::python
