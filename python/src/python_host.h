#pragma once

#include <pybind11/pybind11.h>

#include "nimble/engine/host.h"

namespace nimble::python {

// How a recording's results are arranged: an object of the Python package.
class StructureNote final : public HostNote {
 public:
  explicit StructureNote(pybind11::object structure) : structure(std::move(structure)) {}
  ~StructureNote() override {
    const pybind11::gil_scoped_acquire gil;
    structure = {};
  }
  bool same_as(const HostNote& other) const override {
    const pybind11::gil_scoped_acquire gil;
    return structure.equal(dynamic_cast<const StructureNote&>(other).structure);
  }
  pybind11::object structure;
};

// The engine's view of a Python object with the methods run, record, outside, kept, watch, warn and log and
// the attribute structure. May be used with or without Python's lock.
class PythonHost final : public Host {
 public:
  explicit PythonHost(pybind11::object host) : host_(std::move(host)) {}

  Tensors run(const Tensors& inputs, const Pauses* pauses) override;
  Tensors record(const Tensors& inputs, ProgramBuilder& builder) override;
  void record_backward(ProgramBuilder& builder, const std::function<void()>& backward) override;
  Tensors outside() override;
  Tensors kept(std::span<const c10::Storage> escaped) override;
  std::shared_ptr<HostNote> note() override;
  bool take_over(std::size_t step) override;
  std::unique_ptr<OutsideGuard> watch(const Program& program) override;
  void warn(const std::string& text) override;
  void log(const std::string& text) override;

 private:
  pybind11::object host_;  // the caller holds Python's lock when this goes
};

}  // namespace nimble::python
