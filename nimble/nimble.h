#pragma once

// Nimble's public C++ interface: compile a function of tensors, call it, ask what it did.
#include "nimble/engine/compile.h"
#include "nimble/engine/errors.h"
#include "nimble/engine/options.h"
