#include "nimble/kernels/kernel_source.h"

#include "nimble/kernels/device_sources.h"

namespace nimble::kernels {

std::string with_prelude(std::string_view constants, std::string_view kernel) {
  std::string text;
  for (std::string_view part :
       {device::instructions, device::elements, device::functions, constants, kernel}) {
    text.append(part).append("\n");
  }
  return text;
}

std::string_view fingerprint() { return device::fingerprint; }

std::string constant(std::string_view name, std::int64_t value) {
  return "constexpr Index " + std::string(name) + " = " + std::to_string(value) + ";\n";
}

std::string type_alias(std::string_view name, c10::ScalarType type) {
  return "using " + std::string(name) + " = " + std::string(device_type(type)) + ";\n";
}

std::string_view device_type(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
      return "float";
    case c10::kDouble:
      return "double";
    case c10::kHalf:
      return "Half";
    case c10::kBFloat16:
      return "BFloat16";
    case c10::kBool:
      return "bool";
    case c10::kByte:
      return "unsigned char";
    case c10::kChar:
      return "signed char";
    case c10::kShort:
      return "short";
    case c10::kInt:
      return "int";
    case c10::kLong:
      return "long long";
    default:
      return {};
  }
}

namespace {
// Of a large GPU: an H200 has 132 multiprocessors.
constexpr std::int64_t kEnoughThreads = 132 * 128;
}  // namespace

std::int64_t spread_vector(std::int64_t elements, std::int64_t widest) {
  while (widest > 1 && elements / widest < kEnoughThreads) widest /= 2;
  return widest;
}

unsigned block_size(std::int64_t work) { return work < kEnoughThreads ? 64 : 128; }

unsigned block_count(std::int64_t work) {
  return static_cast<unsigned>((work + block_size(work) - 1) / block_size(work));
}

}  // namespace nimble::kernels
