#include "nimble/core/json/writer.h"

namespace nimble::json_format {

std::string line(const Object& value) { return value.dump(-1, ' ', false, Object::error_handler_t::replace); }

std::string lines(const std::vector<std::string>& elements) {
  std::string out = "[";
  for (std::size_t i = 0; i < elements.size(); ++i) out += (i == 0 ? "\n  " : ",\n  ") + elements[i];
  return out + (elements.empty() ? "]" : "\n]");
}

}  // namespace nimble::json_format
