#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace nimble::json_format {

using Object = nlohmann::ordered_json;

// One line of JSON. Bytes that are no UTF-8 become U+FFFD rather than an exception.
std::string line(const Object& value);

// An array with one element on each line: readable, and differences show line by line.
std::string lines(const std::vector<std::string>& elements);

}  // namespace nimble::json_format
