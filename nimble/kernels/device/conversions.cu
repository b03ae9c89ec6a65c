// Half-precision numbers by their bits: including CUDA's own headers would take longer than compiling a
// kernel.
__device__ inline float half_to_float(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ inline unsigned short float_to_half(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

__device__ inline float bfloat16_to_float(unsigned short bits) {
  return __uint_as_float(unsigned(bits) << 16);
}

__device__ inline unsigned short float_to_bfloat16(float value) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
