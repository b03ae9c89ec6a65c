#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nimble {

// FNV-1a over bytes: enough to notice damage and to tell files apart, not to keep out whoever wants to
// deceive.
class Hash {
 public:
  void add_byte(std::uint8_t byte) { value_ = (value_ ^ byte) * 1099511628211u; }
  void add_bytes(std::string_view bytes);

  // Sixteen hexadecimal digits.
  std::string digits() const;

 private:
  std::uint64_t value_ = 14695981039346656037u;
};

}  // namespace nimble
