// Compiled for 256-bit vectors.
#define NIMBLE_INSTRUCTIONS avx2
#include "nimble/kernels/cpu/block_functions.inc"
