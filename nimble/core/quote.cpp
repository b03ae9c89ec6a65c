#include "nimble/core/quote.h"

#include <cstdio>

namespace nimble {

std::string quote(std::string_view name) {
  constexpr std::size_t kLongest = 120;
  std::string out = "'";
  for (unsigned char c : name.substr(0, kLongest)) {
    if (c < 0x20 || c == 0x7f) {
      char escaped[5];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", c);
      out += escaped;
    } else {
      out += static_cast<char>(c);
    }
  }
  if (name.size() > kLongest) out += "...";
  return out + "'";
}

}  // namespace nimble
