#include "nimble/engine/wording.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace nimble {
namespace {

std::string three_digits(double value) {
  const int before_point = value > 0 ? static_cast<int>(std::floor(std::log10(value))) + 1 : 1;
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", std::clamp(3 - before_point, 0, 6), value);
  return text;
}

}  // namespace

std::string counted(std::uint64_t count, std::string_view thing) {
  return std::to_string(count) + ' ' + std::string(thing) + (count == 1 ? "" : "s");
}

std::string milliseconds(double value) { return three_digits(value) + " ms"; }

std::string bytes(std::uint64_t count) {
  const auto value = static_cast<double>(count);
  if (count < 1024) return std::to_string(count) + " bytes";
  if (count < std::uint64_t{100} << 10) return three_digits(value / 1024) + " KiB";
  return three_digits(value / (1 << 20)) + " MiB";
}

std::string what_of(const std::exception& error) {
  const auto* of_pytorch = dynamic_cast<const c10::Error*>(&error);
  return of_pytorch ? of_pytorch->what_without_backtrace() : error.what();
}

}  // namespace nimble
