#pragma once

#include "nimble/core/error.h"
#include "nimble/torch/record_error.h"

namespace nimble {

// A strict function was called with something other than it was prepared for.
class GuardError : public Error {
 public:
  using Error::Error;
};

// A replay did not give what eager PyTorch gives.
class ValidationError : public Error {
 public:
  using Error::Error;
};

}  // namespace nimble
