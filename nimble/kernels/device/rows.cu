// Work over rows that threads hold in their registers: `row_threads` threads share a row of `columns`
// elements, each has `items` vectors of `width` neighbours, and neighbouring threads have neighbouring
// vectors. The rows of a block are its warps, or it has only one.
constexpr int kWarp = 32;
using Row = float[items][width];  // what one thread has of it

__device__ inline float infinity() { return __int_as_float(0x7f800000); }

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
struct Smallest {
  __device__ float operator()(float a, float b) const { return min_or_nan(a, b); }
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

// What `of` gives for each element of a row, combined.
template <int turn, class Combine, class Of>
__device__ inline float combined(const Row& row, float start, Combine combine, Of of) {
  float made[1] = {start};
#pragma unroll
  for (int item = 0; item < items; ++item) {
    if (!is_inside(item)) continue;
#pragma unroll
    for (int lane = 0; lane < width; ++lane) made[0] = combine(made[0], of(row[item][lane]));
  }
  over_row<turn>(made, combine);
  return made[0];
}

// One number for each row.
template <int turn>
__device__ inline float sum(const Row& row) {
  return combined<turn>(row, 0.0f, Sum(), [](float x) { return x; });
}
template <int turn>
__device__ inline float mean(const Row& row) {
  return sum<turn>(row) / float(columns);
}
template <int turn>
__device__ inline float largest(const Row& row) {
  return combined<turn>(row, -infinity(), Largest(), [](float x) { return x; });
}
template <int turn>
__device__ inline float smallest(const Row& row) {
  return combined<turn>(row, infinity(), Smallest(), [](float x) { return x; });
}
template <int turn>
__device__ inline float sum_of_squares(const Row& row) {
  return combined<turn>(row, 0.0f, Sum(), [](float x) { return x * x; });
}
template <int turn>
__device__ inline float norm(const Row& row) {
  return ::sqrt(sum_of_squares<turn>(row));
}
template <int turn>
__device__ inline float sum_of_absolutes(const Row& row) {
  return combined<turn>(row, 0.0f, Sum(), [](float x) { return fn::abs(x); });
}
template <int turn>
__device__ inline float largest_absolute(const Row& row) {
  return combined<turn>(row, 0.0f, Largest(), [](float x) { return fn::abs(x); });
}

// First the mean, then the squares of what is left without it. The mean is rounded, so what is left has a
// small mean of its own: of rows far from zero nothing is lost.
template <int turn>
struct LayerNorm {
  float center, rest, scale;

  __device__ LayerNorm(const Row& row, float epsilon) {
    center = mean<turn>(row);
    float left[2] = {};  // their sum, and that of their squares
#pragma unroll
    for (int item = 0; item < items; ++item) {
      if (!is_inside(item)) continue;
#pragma unroll
      for (int lane = 0; lane < width; ++lane) {
        const float difference = row[item][lane] - center;
        left[0] += difference;
        left[1] = fn::multiply_add(difference, difference, left[1]);
      }
    }
    over_row<turn + 1>(left, Sum());
    rest = left[0] / float(columns);
    const float squares = fn::larger(fn::multiply_add(-left[0], rest, left[1]), 0.0f);
    scale = ::rsqrt(squares / float(columns) + epsilon);
  }
  __device__ float operator()(float x) const { return (x - center - rest) * scale; }
};

template <int turn>
struct RmsNorm {
  float scale;

  __device__ RmsNorm(const Row& row, float epsilon)
      : scale(::rsqrt(sum_of_squares<turn>(row) / float(columns) + epsilon)) {}
  __device__ float operator()(float x) const { return x * scale; }
};

template <int turn>
struct Softmax {
  float most, all;

  __device__ explicit Softmax(const Row& row)
      : most(largest<turn>(row)),
        all(combined<turn + 1>(row, 0.0f, Sum(), [this](float x) { return ::exp(x - most); })) {}
  __device__ float operator()(float x) const { return ::exp(x - most) / all; }
};

template <int turn>
struct LogSoftmax {
  float most, rest;

  __device__ explicit LogSoftmax(const Row& row) {
    const Softmax<turn> softmax(row);
    most = softmax.most;
    rest = ::log(softmax.all);
  }
  __device__ float operator()(float x) const { return x - most - rest; }
};

// Nothing of a row of which nothing is left, where a softmax has no number.
template <int turn>
struct SafeSoftmax {
  Softmax<turn> softmax;

  __device__ explicit SafeSoftmax(const Row& row) : softmax(row) {}
  __device__ float operator()(float x) const { return softmax.most == -infinity() ? 0.0f : softmax(x); }
};
