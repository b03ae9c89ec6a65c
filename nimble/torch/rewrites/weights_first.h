#pragma once

#include "nimble/torch/program.h"

namespace nimble {

// What is made of weights alone comes first: then every weight is there wherever it is wanted.
Program with_weights_first(Program program);

}  // namespace nimble
