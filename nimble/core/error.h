#pragma once

#include <stdexcept>
#include <string>

namespace nimble {

// The root of every exception that Nimble throws. A message names the function that refused, what it was
// given and what to do about it: "[nimble::TaskGraphBuilder] edge 3 -> 3: a task cannot wait for itself".
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller passed something that no valid program can contain: a cycle, an unknown id, malformed JSON.
class InvalidInput : public Error {
 public:
  using Error::Error;
};

}  // namespace nimble
