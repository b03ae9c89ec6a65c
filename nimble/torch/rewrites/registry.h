#pragma once

#include <span>
#include <string>
#include <vector>

#include "nimble/torch/rewrites/rewrite.h"

namespace nimble {

// Every rewrite there is, in the order in which they are applied.
std::span<const Rewrite* const> all_rewrites();

// The rewrites of these names, in the order in which they are applied. "default" stands for all, "none" for
// none. Throws Error for a name that does not exist, and says which ones are like it.
std::vector<const Rewrite*> rewrites_named(std::span<const std::string> names);

}  // namespace nimble
