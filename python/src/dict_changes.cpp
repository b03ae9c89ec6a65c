#include "dict_changes.h"

#include <numeric>
#include <unordered_map>
#include <utility>

namespace nimble::python {

#if PY_VERSION_HEX >= 0x030C0000

// Who wants to know of which dictionary. All of it happens under Python's lock.
struct Watchers {
  struct Interest {
    DictChanges* who;
    std::size_t index;
  };
  std::unordered_map<PyObject*, std::vector<Interest>> interests;
  int id = PyDict_AddWatcher(&Watchers::notice);  // negative: they are all taken

  // Never destroyed: dictionaries change until the very end of the process.
  static Watchers& all() {
    static auto* watchers = new Watchers;
    return *watchers;
  }

  // Called before the change is made, so there is nothing to look at yet.
  static int notice(PyDict_WatchEvent, PyObject* dict, PyObject*, PyObject*) {
    const auto& interests = all().interests;
    if (const auto found = interests.find(dict); found != interests.end()) {
      for (const Interest& interest : found->second) interest.who->mark(interest.index);
    }
    return 0;
  }

  bool add(PyObject* dict, Interest interest) {
    if (id < 0 || PyDict_Watch(id, dict) != 0) {
      PyErr_Clear();
      return false;
    }
    interests[dict].push_back(interest);
    return true;
  }

  void remove(PyObject* dict, const DictChanges* who) {
    const auto found = interests.find(dict);
    if (found == interests.end()) return;
    std::erase_if(found->second, [&](const Interest& interest) { return interest.who == who; });
    if (!found->second.empty()) return;
    interests.erase(found);
    if (PyDict_Unwatch(id, dict) != 0) PyErr_Clear();
  }
};

DictChanges::DictChanges(std::vector<PyObject*> dicts)
    : dicts_(std::move(dicts)), changed_(dicts_.size()), is_changed_(dicts_.size(), true) {
  std::iota(changed_.begin(), changed_.end(), std::size_t{0});
  for (std::size_t i = 0; i < dicts_.size() && is_told_; ++i) {
    is_told_ = Watchers::all().add(dicts_[i], {this, i});
  }
}

DictChanges::~DictChanges() {
  for (PyObject* dict : dicts_) Watchers::all().remove(dict, this);
}

void DictChanges::mark(std::size_t dict) {
  if (!is_changed_[dict]) changed_.push_back(dict);
  is_changed_[dict] = true;
}

bool DictChanges::all_in_place(const std::function<bool(std::size_t)>& is_in_place) {
  if (!is_told_) {
    for (std::size_t i = 0; i < dicts_.size(); ++i) {
      if (!is_in_place(i)) return false;
    }
    return true;
  }
  while (!changed_.empty()) {
    const std::size_t dict = changed_.back();
    changed_.pop_back();
    is_changed_[dict] = false;  // looking may run Python, and a change meanwhile marks it again
    if (is_in_place(dict)) continue;
    mark(dict);
    return false;
  }
  return true;
}

#else

DictChanges::DictChanges(std::vector<PyObject*> dicts)
    : dicts_(std::move(dicts)), versions_(dicts_.size(), 0) {}
DictChanges::~DictChanges() = default;

bool DictChanges::all_in_place(const std::function<bool(std::size_t)>& is_in_place) {
  constexpr std::size_t kAhead = 16;  // they lie in memory that nobody has touched since the last call
  for (std::size_t i = 0; i < dicts_.size(); ++i) {
    if (i + kAhead < dicts_.size()) __builtin_prefetch(dicts_[i + kAhead]);
    const std::uint64_t version = reinterpret_cast<PyDictObject*>(dicts_[i])->ma_version_tag;
    if (version == versions_[i]) continue;
    if (!is_in_place(i)) return false;
    versions_[i] = version;
  }
  return true;
}

#endif

}  // namespace nimble::python
