// One thread makes `columns` neighbouring pixels of `lanes` channels: each pixel of the input that they share
// is loaded once. `Index` and the constants come from the host: sizes, strides in elements, how the work is
// laid out.
extern "C" __global__ void __launch_bounds__(threads)
    nimble_kernel(const T* x, const T* weight, const T* bias, T* y) {
  after_earlier_kernels(x, weight, bias, y);
  Index rest = static_cast<Index>(blockIdx.x) * threads + threadIdx.x;
  if (rest >= work) return;
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

  constexpr int reach = (columns - 1) * stride_width + (kernel_width - 1) * dilation_width + 1;
  float sum[columns][lanes] = {};
  const T* const from = x + image * x_image + channel * x_channel;
#pragma unroll
  for (int k = 0; k < kernel_height; ++k) {
    const Index in_row = row * stride_height - padding_height + k * dilation_height;
    const bool row_inside = in_row >= 0 && in_row < height;
    // All loads of a row come before its arithmetic, without branches in between: they are under way
    // together.
    float pixels[reach][lanes];
#pragma unroll
    for (int j = 0; j < reach; ++j) {
      const Index in_column = column * stride_width - padding_width + j;
      const bool inside = row_inside && in_column >= 0 && in_column < width;
      Vector<T, lanes> pixel = {};
      if (inside) pixel = load<lanes>(from + in_row * x_row + in_column * x_column);
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        pixels[j][lane] = inside ? before(widen(pixel.at[lane])) : 0.0f;
      }
    }
#pragma unroll
    for (int j = 0; j < kernel_width; ++j) {
      const auto filter = load<lanes>(weight + channel * weight_channel + k * weight_row + j * weight_column);
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        const float tap = widen(filter.at[lane]);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
          sum[c][lane] += pixels[c * stride_width + j * dilation_width][lane] * tap;
        }
      }
    }
  }

  float shift[lanes] = {};
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    if (has_bias) shift[lane] = widen(bias[channel + lane]);
  }
#pragma unroll
  for (int c = 0; c < columns; ++c) {
    if (column + c >= out_width) break;
    Vector<T, lanes> result;
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      result.at[lane] = Narrow<T>::of(after(sum[c][lane] + shift[lane]));
    }
    store(y + image * y_image + channel * y_channel + row * y_row + (column + c) * y_column, result);
  }
}
