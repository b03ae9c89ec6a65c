// Compiled for 512-bit vectors.
#define NIMBLE_INSTRUCTIONS avx512
#include "nimble/kernels/cpu/block_functions.inc"
