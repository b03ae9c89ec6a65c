#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "nimble/kernels/disk_cache.h"
#include "nimble/torch/rewrites/rewrite.h"

namespace nimble {

// What was measured on this machine by any process, kept in the user's cache beside the compiled kernels.
// None for a device whose times are not worth keeping.
std::shared_ptr<KnownTimes> times_on_disk(c10::Device device);

// Those that `cache` has of a machine and of kernels with this fingerprint.
std::shared_ptr<KnownTimes> times_in(kernels::DiskCache cache, std::string_view machine,
                                     std::string_view kernels);

}  // namespace nimble
