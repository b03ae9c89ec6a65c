#pragma once

#include <string>

#include "nimble/core/error.h"

namespace nimble {

// Something in the user's function cannot be replayed. Says which operator, where in the user's code, and
// what to do instead.
class RecordError : public Error {
 public:
  using Error::Error;
};

// The same, of one task of a finished program.
class TaskRefused : public RecordError {
 public:
  TaskRefused(const std::string& message, std::size_t task) : RecordError(message), task(task) {}
  const std::size_t task;
};

// What a refusal says before it becomes an error (strict) or a warning.
struct Refusal {
  std::string what;    // "aten::nonzero"
  std::string why;     // "the shape of its result depends on data"
  std::string advice;  // "use torch.where with three arguments, or …"
  std::string where;   // "model.py:12 in forward", empty where unknown
  // It may pass: a first call sets up what later ones find (an optimizer's state), so the next is tried too.
  bool may_pass = false;

  std::string message() const {
    std::string text = "[nimble::record] " + what + " cannot be replayed: " + why;
    if (!where.empty()) text += " (" + where + ")";
    if (!advice.empty()) text += ". " + advice;
    return text;
  }
};

}  // namespace nimble
