// A convolution as a product of matrices by tensor cores: pixels, with what a depthwise convolution makes of
// them on the way, by filters of one pixel; or all that lies under a larger filter, pixel after pixel.
//
// A block makes `tile_channels` channels of eight groups of `columns` neighbouring pixels. Its warps share
// the inner dimension, chunk by chunk, and add up at the end what each found. Inside a warp a thread holds 16
// bytes of neighbouring inner channels of each pixel of one group: exactly what tensor cores want of it, if
// what they count as elements j and j+4 are neighbours in memory. The order of the inner dimension is free as
// long as both matrices keep to the same, so nothing has to be exchanged between threads, or packed.
constexpr int vector = 16 / sizeof(T);
constexpr int chunk = 4 * vector;
constexpr int taps = has_filters ? 1 : kernel_height * kernel_width;  // pixels under a filter of the product
constexpr int chunks_of_tap = (inner + chunk - 1) / chunk, chunks = taps * chunks_of_tap;
constexpr int pixel_tiles = columns / 2, channel_tiles = tile_channels / 8;
constexpr int threads = 32 * warps;

// Neighbouring elements of a row: what a thread holds of it, as tensor cores take it.
template <class E>
struct PieceOf {
  unsigned words[4];

  __device__ float at(int n) const {
    if constexpr (sizeof(E) == 4) {
      return __uint_as_float(words[n]);
    } else {
      return widen(E{static_cast<unsigned short>(words[n / 2] >> n % 2 * 16)});
    }
  }
  __device__ void set(int n, float value) {
    if constexpr (sizeof(E) == 4) {
      words[n] = __float_as_uint(value);
    } else {
      const unsigned bits = Narrow<E>::of(value).bits;
      words[n / 2] = n % 2 == 0 ? bits : words[n / 2] | bits << 16;
    }
  }
};
using Piece = PieceOf<T>;

// The first is number `channel`; zeros where there are none. `lanes` of them lie aligned.
template <int lanes>
__device__ inline Piece load_piece(const T* from, int channel, bool inside) {
  constexpr int bytes = lanes * sizeof(T);
  Piece piece = {};
#pragma unroll
  for (int i = 0; i < vector; i += lanes) {
    if (!inside || channel + i >= inner) continue;
    if constexpr (bytes >= 4) {
      const auto part = load<bytes / 4>(reinterpret_cast<const unsigned*>(from + channel + i));
#pragma unroll
      for (int w = 0; w < bytes / 4; ++w) piece.words[i * sizeof(T) / 4 + w] = part.at[w];
    } else {
      piece.words[i / 2] |= *reinterpret_cast<const unsigned short*>(from + channel + i) << i % 2 * 16;
    }
  }
  return piece;
}

// What tensor cores are given of a piece: its words, floats rounded to TF32;
template <class E>
struct WholeOf {
  unsigned element[4];

  __device__ explicit WholeOf(const PieceOf<E>& piece) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      element[n] = sizeof(E) == 4 ? float_to_tf32(__uint_as_float(piece.words[n])) : piece.words[n];
    }
  }
};
// or floats as sums of two TF32 numbers. By Veltkamp's way to split, which takes fewer instructions than
// rounding; of infinity it makes NaN.
struct Split {
  unsigned element[4], rest[4];

  __device__ explicit Split(const PieceOf<float>& piece) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const float value = __uint_as_float(piece.words[n]), large = __fmul_rn(value, 8193.0f);
      const float high = __fadd_rn(large, __fadd_rn(value, -large));
      element[n] = __float_as_uint(high);
      rest[n] = __float_as_uint(__fadd_rn(value, -high));
    }
  }
};

// Adds the product of elements e and e+1 of two pixels by those of a row of weights.
__device__ inline void multiply(float (&sum)[4], const WholeOf<float>& low, const WholeOf<float>& high,
                                const WholeOf<float>& row, int e) {
  multiply_tf32(sum, low.element[e], high.element[e], low.element[e + 1], high.element[e + 1], row.element[e],
                row.element[e + 1]);
}
__device__ inline void multiply(float (&sum)[4], const WholeOf<Half>& low, const WholeOf<Half>& high,
                                const WholeOf<Half>& row, int e) {
  multiply_half(sum, low.element[e], high.element[e], low.element[e + 1], high.element[e + 1], row.element[e],
                row.element[e + 1]);
}
__device__ inline void multiply(float (&sum)[4], const WholeOf<BFloat16>& low, const WholeOf<BFloat16>& high,
                                const WholeOf<BFloat16>& row, int e) {
  multiply_bfloat16(sum, low.element[e], high.element[e], low.element[e + 1], high.element[e + 1],
                    row.element[e], row.element[e + 1]);
}
// With three of the four products (the fourth is as small as the last bits of a float) the result is as near
// as float32's own. In a small product tensor cores have nothing else to do meanwhile.
__device__ inline void multiply(float (&sum)[4], const Split& low, const Split& high, const Split& row,
                                int e) {
  multiply_tf32(sum, low.rest[e], high.rest[e], low.rest[e + 1], high.rest[e + 1], row.element[e],
                row.element[e + 1]);
  multiply_tf32(sum, low.element[e], high.element[e], low.element[e + 1], high.element[e + 1], row.rest[e],
                row.rest[e + 1]);
  multiply_tf32(sum, low.element[e], high.element[e], low.element[e + 1], high.element[e + 1], row.element[e],
                row.element[e + 1]);
}

// Neighbouring pixels of a row of the result.
struct Group {
  Index image, row, column;
  __device__ explicit Group(Index number)
      : image(number / column_tiles / out_height),
        row(number / column_tiles % out_height),
        column(number % column_tiles * columns) {}
  __device__ bool has(int pixel) const { return image < images && column + pixel < out_width; }
};

// What is multiplied: of each pixel of a group the one that lies under a tap of its filter,
__device__ inline void load_pixels(Piece (&pixels)[columns], const T* x, const Group& group, int tap,
                                   int channel) {
  constexpr bool stays_inside = taps == 1 && padding_height == 0 && padding_width == 0;
  const Index row = group.row * stride_height - padding_height + tap / kernel_width * dilation_height;
#pragma unroll
  for (int c = 0; c < columns; ++c) {
    const Index column =
        (group.column + c) * stride_width - padding_width + tap % kernel_width * dilation_width;
    const bool inside =
        stays_inside || (row >= 0 && row < height && column >= 0 && column < width && tap < taps);
    pixels[c] = load_piece<x_lanes>(x + group.image * x_image + row * x_row + column * x_column, channel,
                                    inside && group.has(c));
  }
}

// or between(depthwise convolution(before(x)) + bias). Pixels beside each other share most of what they read.
__device__ inline void convolve_pixels(Piece (&pixels)[columns], const T* x, const T* filters,
                                       const T* filter_bias, const Group& group, int channel) {
  constexpr int reach = (columns - 1) * stride_width + (kernel_width - 1) * dilation_width + 1;
  float sum[columns][vector] = {};
  Piece shift = {};
  if constexpr (has_filter_bias) shift = load_piece<filter_bias_lanes>(filter_bias, channel, true);
  const T* const from = x + group.image * x_image;
  // Unrolled it is many times the code, and no faster: loads wait for the arithmetic before them.
#pragma unroll 1
  for (int first = 0; first < kernel_height; first += rows_ahead) {
    Piece read[rows_ahead][reach], filter[rows_ahead][kernel_width];
    bool inside[rows_ahead][reach];
#pragma unroll
    for (int r = 0; r < rows_ahead; ++r) {
      const Index in_row = group.row * stride_height - padding_height + (first + r) * dilation_height;
      const bool row_inside =
          first + r < kernel_height && group.image < images && in_row >= 0 && in_row < height;
#pragma unroll
      for (int j = 0; j < reach; ++j) {
        const Index in_column = group.column * stride_width - padding_width + j;
        inside[r][j] = row_inside && in_column >= 0 && in_column < width;
        read[r][j] = load_piece<x_lanes>(from + in_row * x_row + in_column * x_column, channel, inside[r][j]);
      }
#pragma unroll
      for (int j = 0; j < kernel_width; ++j) {
        filter[r][j] = load_piece<filter_lanes>(filters + (first + r) * filter_row + j * filter_column,
                                                channel, first + r < kernel_height);
      }
    }
    __syncwarp();  // loads stay before the arithmetic
#pragma unroll
    for (int r = 0; r < rows_ahead; ++r) {
#pragma unroll
      for (int j = 0; j < reach; ++j) {
#pragma unroll
        for (int lane = 0; lane < vector; ++lane) {
          const float value = before(read[r][j].at(lane));
#pragma unroll
          for (int c = 0; c < columns; ++c) {
            const int tap = j - c * stride_width;
            if (tap < 0 || tap % dilation_width != 0 || tap / dilation_width >= kernel_width) continue;
            const float padded = before_keeps_zero || inside[r][j] ? value : 0.0f;
            sum[c][lane] += padded * filter[r][tap / dilation_width].at(lane);
          }
        }
      }
    }
  }
#pragma unroll
  for (int c = 0; c < columns; ++c) {
#pragma unroll
    for (int lane = 0; lane < vector; ++lane) pixels[c].set(lane, between(sum[c][lane] + shift.at(lane)));
  }
}

// What a product has of its own, where several are made of the same pixels.
struct Product {
  const T* weight;
  const T* bias;
  T* y;
  Index y_step;    // from one pixel of the result to the next
  Index channels;  // of the result
};

// By tiles of 16 pixels and 8 channels.
using Sums = float[pixel_tiles][channel_tiles][4];

// Adds up what this warp has to multiply, by factors of that kind.
template <class Factor>
__device__ inline void add_products(Sums& sum, const Product& product, const T* x, const T* filters,
                                    const T* filter_bias, Index first_group, Index first_channel) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Group group(first_group + lane / 4);
#pragma unroll 1
  for (int first = warp; first < chunks; first += warps * ahead) {
    Piece pixels[ahead][columns], rows[ahead][channel_tiles];
    // All loads of a round are under way together.
#pragma unroll
    for (int s = 0; s < ahead; ++s) {
      const int number = first + s * warps, tap = taps == 1 ? 0 : number / chunks_of_tap;
      const int inner_channel = (number - tap * chunks_of_tap) * chunk + lane % 4 * vector;
#pragma unroll
      for (int n = 0; n < channel_tiles; ++n) {
        const Index channel = first_channel + n * 8 + lane / 4;
        rows[s][n] = load_piece<weight_lanes>(product.weight + channel * weight_row + tap * inner,
                                              inner_channel, channel < product.channels && tap < taps);
      }
      if constexpr (has_filters) {
        convolve_pixels(pixels[s], x, filters, filter_bias, group, inner_channel);
      } else {
        load_pixels(pixels[s], x, group, tap, inner_channel);
      }
    }
    __syncwarp();  // else the compiler, to save registers, would move loads behind arithmetic
#pragma unroll
    for (int s = 0; s < ahead; ++s) {
#pragma unroll
      for (int m = 0; m < pixel_tiles; ++m) {
        const Factor low(pixels[s][2 * m]), high(pixels[s][2 * m + 1]);
#pragma unroll
        for (int n = 0; n < channel_tiles; ++n) {
          const Factor row(rows[s][n]);
#pragma unroll
          for (int e = 0; e < 4; e += 2) multiply(sum[m][n], low, high, row, e);
        }
      }
    }
  }
}

// Sums of split floats that are no number may be infinite in truth: whole floats tell.
__device__ inline void repair(Sums& sum, const Product& product, const T* x, const T* filters,
                              const T* filter_bias, Index first_group, Index first_channel) {
  constexpr int numbers = sizeof(Sums) / sizeof(float);
  const auto at = [](Sums& sums, int i) -> float& {
    return sums[i / 4 / channel_tiles][i / 4 % channel_tiles][i % 4];
  };
  bool all_numbers = true;
#pragma unroll
  for (int i = 0; i < numbers; ++i) all_numbers &= at(sum, i) == at(sum, i);
  if (!__any_sync(0xffffffffu, !all_numbers)) return;
  Sums whole = {};
  add_products<WholeOf<T>>(whole, product, x, filters, filter_bias, first_group, first_channel);
#pragma unroll
  for (int i = 0; i < numbers; ++i) {
    if (at(sum, i) != at(sum, i)) at(sum, i) = at(whole, i);
  }
}

// All threads of a block make its tile of the product. Static: what they share is of another size in every
// kernel, and where kernels run on the host several are in one process.
static __device__ inline void make_tile(const Product& product, const T* x, const T* residual,
                                        const T* filters, const T* filter_bias, unsigned block) {
  alignas(16) __shared__ float found[warps][8 * columns][tile_channels + 8];  // 8: no two share a bank
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Index channel_blocks = (product.channels + tile_channels - 1) / tile_channels;
  const Index first_group = block / channel_blocks * 8;
  const Index first_channel = block % channel_blocks * tile_channels;

  // What is added at the end is on its way while the product is made.
  constexpr int tile_vectors = tile_channels / out_lanes;
  constexpr int results = (8 * columns * tile_vectors + threads - 1) / threads;  // of a thread
  using Out = Vector<T, out_lanes>;
  Out shift[results] = {}, added[results] = {};
  Index place[results];  // of the result in y; none: -1
#pragma unroll
  for (int i = 0; i < results; ++i) {
    const int number = threadIdx.x + i * threads, slot = number / tile_vectors;
    const Group group(first_group + slot % 8);
    const Index channel = first_channel + number % tile_vectors * out_lanes;
    const Index pixel = (group.image * out_height + group.row) * out_width + group.column + slot / 8;
    const bool exists = slot < 8 * columns && group.has(slot / 8) && channel < product.channels;
    place[i] = exists ? pixel * product.y_step + channel : -1;
    if (has_bias && exists) shift[i] = load<out_lanes>(product.bias + channel);
    if (has_residual && exists) added[i] = load<out_lanes>(residual + pixel * residual_step + channel);
  }

  Sums sum = {};
  if constexpr (takes_apart) {
    add_products<Split>(sum, product, x, filters, filter_bias, first_group, first_channel);
    repair(sum, product, x, filters, filter_bias, first_group, first_channel);
  } else {
    add_products<WholeOf<T>>(sum, product, x, filters, filter_bias, first_group, first_channel);
  }
#pragma unroll
  for (int m = 0; m < pixel_tiles; ++m) {
#pragma unroll
    for (int n = 0; n < channel_tiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int slot = (2 * m + half) * 8 + lane / 4;
        store(&found[warp][slot][n * 8 + lane % 4 * 2],
              Vector<float, 2>{sum[m][n][2 * half], sum[m][n][2 * half + 1]});
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < results; ++i) {
    if (place[i] < 0) continue;
    const int number = threadIdx.x + i * threads;
    Vector<float, out_lanes> total = {};
#pragma unroll
    for (int w = 0; w < warps; ++w) {
      const auto part = load<out_lanes>(&found[w][number / tile_vectors][number % tile_vectors * out_lanes]);
#pragma unroll
      for (int l = 0; l < out_lanes; ++l) total.at[l] += part.at[l];
    }
    Out result;
#pragma unroll
    for (int l = 0; l < out_lanes; ++l) {
      result.at[l] = Narrow<T>::of(after(total.at[l] + widen(shift[i].at[l]) + widen(added[i].at[l])));
    }
    store(product.y + place[i], result);
  }
}
