#pragma once

#include <pybind11/pybind11.h>

#include "nimble/torch/program_builder.h"

namespace nimble::python {

// Runs the operator overload `func` on Python arguments through the builder and returns its results, or
// NotImplemented if it is a composite that the caller shall take apart.
pybind11::object call_operator(ProgramBuilder& builder, const pybind11::object& func,
                               const pybind11::tuple& args, const pybind11::dict& kwargs, std::string where);

}  // namespace nimble::python
