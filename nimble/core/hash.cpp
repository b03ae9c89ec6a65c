#include "nimble/core/hash.h"

#include <cstdio>

namespace nimble {

void Hash::add_bytes(std::string_view bytes) {
  for (const char byte : bytes) add_byte(static_cast<std::uint8_t>(byte));
}

std::string Hash::digits() const {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value_));
  return digits;
}

}  // namespace nimble
