#include "tests/conformance/delay.h"

namespace nimble::testing {

void delay_current_stream(int) {}

}  // namespace nimble::testing
