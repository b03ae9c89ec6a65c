// What C++ has no words for: instructions of a GPU. Including CUDA's own headers would take longer than
// compiling a kernel.

// Half-precision numbers by their bits.
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

// The larger and the smaller of two numbers; NaN if one of them is.
__device__ inline float max_or_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  return a != a ? a : (b != b ? b : max(a, b));
#endif
}

__device__ inline float min_or_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
#else
  return a != a ? a : (b != b ? b : min(a, b));
#endif
}

// The nearest number that TF32 has. Tensor cores would cut the other bits off.
__device__ inline unsigned float_to_tf32(float value) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}

template <class T>
__device__ inline void hide_origin(T*& pointer) {
  asm volatile("" : "+l"(pointer));
  __builtin_assume(__isGlobal(pointer));
}

// Every thread of every kernel calls this before it reads or writes anything, with all pointers that it was
// given. The kernel may have been launched while those that it depends on were still running; here it waits
// until they are through and what they wrote can be seen, and lets those that depend on it be launched. A
// thread that returned without it would let this kernel end before those it depends on.
template <class... T>
__device__ inline void after_earlier_kernels(T*&... pointers) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  // The compiler takes what a kernel only reads for unchanged since before the kernel began: it would load
  // earlier, and through a cache that is not kept coherent. So it must not know where the pointers are from.
  (hide_origin(pointers), ...);
}

// sum += a b, of matrices that the 32 threads of a warp hold together. Thread 4i+j has of a, 16 rows, the
// elements j and j+4 of the rows i (a0, a2) and i+8 (a1, a3); of b, 8 columns, the same of column i (b0, b1);
// of the sum the columns 2j and 2j+1 of the rows i and i+8. An element is 32 bits of the inner dimension: a
// number in TF32, or two neighbours in half precision.
__device__ inline void multiply_tf32(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                     unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ inline void multiply_half(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                     unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ inline void multiply_bfloat16(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                         unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
