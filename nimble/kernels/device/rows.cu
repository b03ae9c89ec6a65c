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

// What the numbers of all threads of a row make together, each of `count` by itself; all threads get the
// same. Each turn has its own shared memory, so that nobody writes where somebody may still be reading.
template <int turn, int count, class Combine>
__device__ inline void over_row(float (&values)[count], Combine combine) {
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
#pragma unroll
    for (float& value : values) value = combine(value, __shfl_xor_sync(0xffffffffu, value, apart));
  }
  if constexpr (row_threads > kWarp) {
    __shared__ float found[row_threads / kWarp][count];
#pragma unroll
    for (int n = 0; n < count; ++n) {
      if (threadIdx.x % kWarp == 0) found[threadIdx.x / kWarp][n] = values[n];
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < count; ++n) {
      values[n] = found[0][n];
#pragma unroll
      for (int warp = 1; warp < row_threads / kWarp; ++warp) values[n] = combine(values[n], found[warp][n]);
    }
  }
}

// First the mean, then the squares of what is left without it. The mean is rounded, so what is left has a
// small mean of its own: of rows far from zero nothing is lost.
struct LayerNorm {
  float mean, rest, scale;

  __device__ LayerNorm(const float (&row)[items][width], float epsilon) {
    float sum[1] = {};
#pragma unroll
    for (int item = 0; item < items; ++item) {
      if (!is_inside(item)) continue;
#pragma unroll
      for (int lane = 0; lane < width; ++lane) sum[0] += row[item][lane];
    }
    over_row<0>(sum, Sum());
    mean = sum[0] / float(columns);
    float left[2] = {};  // their sum, and that of their squares
#pragma unroll
    for (int item = 0; item < items; ++item) {
      if (!is_inside(item)) continue;
#pragma unroll
      for (int lane = 0; lane < width; ++lane) {
        const float difference = row[item][lane] - mean;
        left[0] += difference;
        left[1] = fn::multiply_add(difference, difference, left[1]);
      }
    }
    over_row<1>(left, Sum());
    rest = left[0] / float(columns);
    const float squares = fn::larger(fn::multiply_add(-left[0], rest, left[1]), 0.0f);
    scale = ::rsqrt(squares / float(columns) + epsilon);
  }
  __device__ float operator()(float x) const { return (x - mean - rest) * scale; }
};

struct Softmax {
  float largest, sum;

  __device__ explicit Softmax(const float (&row)[items][width]) {
    float most[1] = {__int_as_float(0xff800000)};  // -inf
#pragma unroll
    for (int item = 0; item < items; ++item) {
      if (!is_inside(item)) continue;
#pragma unroll
      for (int lane = 0; lane < width; ++lane) most[0] = max_or_nan(most[0], row[item][lane]);
    }
    over_row<0>(most, Largest());
    largest = most[0];
    float all[1] = {};
#pragma unroll
    for (int item = 0; item < items; ++item) {
      if (!is_inside(item)) continue;
#pragma unroll
      for (int lane = 0; lane < width; ++lane) all[0] += ::exp(row[item][lane] - largest);
    }
    over_row<1>(all, Sum());
    sum = all[0];
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
