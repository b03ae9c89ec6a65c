// Work over the channels of images, [images, channels, pixels]: `parts` blocks share a channel. Each thread
// has `items` vectors of `lanes` neighbouring pixels. `pass` is 1 or 2 of two kernels, or 0 of one that does
// both and keeps what it loads.
constexpr int kWarp = 32;
constexpr Index channel_vectors = images * pixels / lanes;
constexpr Index part_vectors = (channel_vectors + parts - 1) / parts;
constexpr bool is_first = pass != 2, is_last = pass != 1, keeps = is_first && is_last;

struct Part {
  Index channel, number, first, last;

  // The second pass goes over the channels from the last to the first: what the first pass read last is still
  // in the cache.
  __device__ explicit Part(Index block = pass == 2 ? channels * parts - 1 - Index(blockIdx.x)
                                                   : Index(blockIdx.x))
      : channel(block / parts),
        number(block % parts),
        first(number * part_vectors),
        last(min(first + part_vectors, channel_vectors)) {}

  // Where a vector lies.
  __device__ Index place(Index vector) const {
    const Index element = vector * lanes;
    return (element / pixels * channels + channel) * pixels + element % pixels;
  }

  // Calls `body(item, vector)` for each vector of this thread.
  template <class Body>
  __device__ void for_each(Body body) const {
#pragma unroll(keeps ? items : 4)
    for (int item = 0; item < items; ++item) {
      const Index vector = first + item * Index(threads) + Index(threadIdx.x);
      if (vector < last) body(item, vector);
    }
  }
};

// Two sums over a channel: of what threads found, of what blocks found.
struct Sums {
  float first, second;

  __device__ void add(const Sums& other) {
    first += other.first;
    second += other.second;
  }
};

__device__ inline Sums over_warp(Sums sums) {
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    sums.add(
        {__shfl_xor_sync(0xffffffffu, sums.first, apart), __shfl_xor_sync(0xffffffffu, sums.second, apart)});
  }
  return sums;
}

// Of all threads of a block; each gets the same.
__device__ inline Sums over_block(Sums sums) {
  sums = over_warp(sums);
  if constexpr (threads > kWarp) {
    __shared__ Sums of_warps[threads / kWarp];
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = sums;
    __syncthreads();
    sums = of_warps[0];
#pragma unroll
    for (int warp = 1; warp < threads / kWarp; ++warp) sums.add(of_warps[warp]);
  }
  return sums;
}

// What a block leaves for the second pass, and what all blocks of its channel have left.
__device__ inline void leave(const Sums& sums, const Part& part, float* found) {
  if (threadIdx.x != 0) return;
  float* const place = found + (part.channel * parts + part.number) * 2;
  place[0] = sums.first;
  place[1] = sums.second;
}
__device__ inline Sums over_parts(const float* found, const Part& part) {
  const Index number = threadIdx.x % kWarp;
  const float* const place = found + (part.channel * parts + number) * 2;
  return over_warp(number < parts ? Sums{place[0], place[1]} : Sums{0.0f, 0.0f});
}

// What becomes of a number before the activation. The way back makes it again, bit by bit, to see what the
// activation let through.
struct Normalise {
  float mean, scale, bias;

  __device__ float operator()(float x) const { return fn::multiply_add(x - mean, scale, bias); }
};
