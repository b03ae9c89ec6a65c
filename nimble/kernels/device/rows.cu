// Work over rows that threads hold in their registers: `row_threads` threads share a row of `columns`
// elements, each has `items` vectors of `width` neighbours, and neighbouring threads have neighbouring
// vectors. The rows of a block are its warps, or it has only one.
constexpr int kWarp = 32;

__device__ inline int first_column(int item) {
  return (item * int(row_threads) + int(threadIdx.x % row_threads)) * int(width);
}
// Whether the row goes so far.
__device__ inline bool is_inside(int item) {
  return columns == items * row_threads * width || first_column(item) < columns;
}

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Largest {
  __device__ float operator()(float a, float b) const { return max_or_nan(a, b); }
};

// What the numbers of all threads of a row make together; all of them get the same. Each turn has its own
// shared memory, so that nobody writes where somebody may still be reading.
template <int turn, class Combine>
__device__ inline float over_row(float value, Combine combine) {
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, apart));
  }
  if constexpr (row_threads > kWarp) {
    __shared__ float found[row_threads / kWarp];
    if (threadIdx.x % kWarp == 0) found[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = found[0];
#pragma unroll
    for (int warp = 1; warp < row_threads / kWarp; ++warp) value = combine(value, found[warp]);
  }
  return value;
}

// First the mean, then the squares of what is left without it: of rows far from zero nothing is lost.
struct LayerNorm {
  float mean, scale;

  __device__ LayerNorm(const float (&row)[items][width], float epsilon) {
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int item = 0; item < items; ++item) {
      if (!is_inside(item)) continue;
#pragma unroll
      for (int lane = 0; lane < width; ++lane) sum += row[item][lane];
    }
    mean = over_row<0>(sum, Sum()) / float(columns);
#pragma unroll
    for (int item = 0; item < items; ++item) {
      if (!is_inside(item)) continue;
#pragma unroll
      for (int lane = 0; lane < width; ++lane) {
        const float difference = row[item][lane] - mean;
        squares = fn::multiply_add(difference, difference, squares);
      }
    }
    scale = ::rsqrt(over_row<1>(squares, Sum()) / float(columns) + epsilon);
  }
  __device__ float operator()(float x) const { return (x - mean) * scale; }
};

struct Softmax {
  float largest, sum;

  __device__ explicit Softmax(const float (&row)[items][width]) {
    largest = __int_as_float(0xff800000);  // -inf
#pragma unroll
    for (int item = 0; item < items; ++item) {
      if (!is_inside(item)) continue;
#pragma unroll
      for (int lane = 0; lane < width; ++lane) largest = max_or_nan(largest, row[item][lane]);
    }
    largest = over_row<0>(largest, Largest());
    sum = 0.0f;
#pragma unroll
    for (int item = 0; item < items; ++item) {
      if (!is_inside(item)) continue;
#pragma unroll
      for (int lane = 0; lane < width; ++lane) sum += ::exp(row[item][lane] - largest);
    }
    sum = over_row<1>(sum, Sum());
  }
  __device__ float operator()(float x) const { return ::exp(x - largest) / sum; }
};

// Nothing of a row of which nothing is left, where a softmax has no number.
struct SafeSoftmax : Softmax {
  using Softmax::Softmax;
  __device__ float operator()(float x) const {
    return largest == __int_as_float(0xff800000) ? 0.0f : Softmax::operator()(x);
  }
};
