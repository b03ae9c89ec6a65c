#pragma once

#include <span>
#include <string>

#include "nimble/core/summary.h"

namespace nimble::tools {

struct NamedSummary {
  std::string name;
  Summary summary;
};

// One graph: a line for each number, with what it means. Several: a table with a row for each.
std::string report(std::span<const NamedSummary> graphs);

// The same figures for machines: a JSON array with an object for each graph. Times are in nanoseconds.
std::string json_report(std::span<const NamedSummary> graphs);

// The line above a timeline picture.
std::string headline(const NamedSummary& graph);

}  // namespace nimble::tools
