// Compiled for what every processor has.
#define NIMBLE_INSTRUCTIONS baseline
#include "nimble/kernels/cpu/block_functions.inc"
