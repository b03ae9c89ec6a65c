#pragma once

#include <string>
#include <string_view>

namespace nimble {

// A name as it appears in messages: in quotes, on one line, control characters escaped, long ones shortened.
std::string quote(std::string_view name);

}  // namespace nimble
