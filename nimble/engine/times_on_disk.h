#pragma once

#include <memory>

#include "nimble/torch/rewrites/rewrite.h"

namespace nimble {

// What was measured on this machine by any process, kept in the user's cache beside the compiled kernels.
// None for a device whose times are not worth keeping.
std::shared_ptr<KnownTimes> times_on_disk(c10::Device device);

}  // namespace nimble
