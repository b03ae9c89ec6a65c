// One thread makes `columns` neighbouring pixels of `lanes` channels: each pixel of the input that they share
// is loaded once. `Index` and the constants come from the host: sizes, strides in elements, how the work is
// laid out.
extern "C" __global__ void __launch_bounds__(threads)
    nimble_kernel(const T* x, const T* weight, const T* bias, T* y) {
  after_earlier_kernels(x, weight, bias, y);
  const Index number = static_cast<Index>(blockIdx.x) * threads + threadIdx.x;
  Index rest = number < work ? number : work - 1;  // all go on: the block has to meet
  // Neighbouring threads take what neighbours in memory: channels, or columns.
  Index channel, column;
  if constexpr (channels_fastest) {
    channel = rest % (channels / lanes) * lanes;
    rest /= channels / lanes;
  }
  column = rest % column_tiles * columns;
  rest /= column_tiles;
  const Index row = rest % out_height;
  rest /= out_height;
  if constexpr (!channels_fastest) {
    channel = rest % channels;
    rest /= channels;
  }
  const Index image = rest;

  T shift[lanes] = {};
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    if (has_bias) shift[lane] = bias[channel + lane];
  }
  constexpr int reach = (columns - 1) * stride_width + (kernel_width - 1) * dilation_width + 1;
  float sum[columns][lanes] = {};
  const T* const from = x + image * x_image + channel * x_channel;
#pragma unroll 1
  for (int first = 0; first < kernel_height; first += rows_ahead) {
    Packed<T, lanes> pixels[rows_ahead][reach], taps[rows_ahead][kernel_width];
    bool inside[rows_ahead][reach];
#pragma unroll
    for (int r = 0; r < rows_ahead; ++r) {
      const int k = first + r;
      const Index in_row = row * stride_height - padding_height + k * dilation_height;
      const bool row_inside = k < kernel_height && in_row >= 0 && in_row < height;
#pragma unroll
      for (int j = 0; j < reach; ++j) {
        const Index in_column = column * stride_width - padding_width + j;
        inside[r][j] = row_inside && in_column >= 0 && in_column < width;
        pixels[r][j] = {};
        if (inside[r][j]) pixels[r][j] = load_packed<lanes>(from + in_row * x_row + in_column * x_column);
      }
#pragma unroll
      for (int j = 0; j < kernel_width; ++j) {
        taps[r][j] = {};
        if (k < kernel_height) {
          taps[r][j] =
              load_packed<lanes>(weight + channel * weight_channel + k * weight_row + j * weight_column);
        }
      }
    }
    // All loads are under way together. The compiler, to save registers, would move them behind arithmetic,
    // or arithmetic before a mere barrier; but not before a number that comes of one.
    const float zero = __syncthreads_or(0) ? 1.0f : 0.0f;
#pragma unroll
    for (int c = 0; c < columns; ++c) {
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) sum[c][lane] += zero;
    }
#pragma unroll
    for (int r = 0; r < rows_ahead; ++r) {
#pragma unroll
      for (int j = 0; j < kernel_width; ++j) {
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) {
          const float tap = taps[r][j].at(lane);
#pragma unroll
          for (int c = 0; c < columns; ++c) {
            const int at = c * stride_width + j * dilation_width;
            const float value = before(pixels[r][at].at(lane));
            sum[c][lane] += (before_keeps_zero || inside[r][at] ? value : 0.0f) * tap;
          }
        }
      }
    }
  }

#pragma unroll
  for (int c = 0; c < columns; ++c) {
    if (number >= work || column + c >= out_width) break;
    Vector<T, lanes> result;
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      result.at[lane] = Narrow<T>::of(after(sum[c][lane] + widen(shift[lane])));
    }
    store(y + image * y_image + channel * y_channel + row * y_row + (column + c) * y_column, result);
  }
}
