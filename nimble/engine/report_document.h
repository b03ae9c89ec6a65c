#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nimble/engine/compiled.h"
#include "nimble/engine/measure.h"

namespace nimble {

// One JSON document with all that is known about a compiled function: every signature and where it stands,
// and of `measured`, if there is one, what was planned and measured of each part, by part. docs/report.md
// says what is in it.
std::string report_document(std::span<const std::shared_ptr<Entry>> entries, const Entry* measured,
                            std::span<const Measured> parts);

}  // namespace nimble
