// One thread makes one pixel of `lanes` channels. `Index` and the constants come from the host: sizes,
// strides in elements, how the work is laid out, and which pooling it is.
extern "C" __global__ void __launch_bounds__(threads) nimble_kernel(const T* x, T* y) {
  after_earlier_kernels(x, y);
  Index rest = static_cast<Index>(blockIdx.x) * threads + threadIdx.x;
  if (rest >= work) return;
  Index channel;
  if constexpr (channels_fastest) {
    channel = rest % (channels / lanes) * lanes;
    rest /= channels / lanes;
  }
  const Index column = rest % out_width;
  rest /= out_width;
  const Index row = rest % out_height;
  rest /= out_height;
  if constexpr (!channels_fastest) {
    channel = rest % channels;
    rest /= channels;
  }
  const Index image = rest;
  const T* const from = x + image * x_image + channel * x_channel;

  float result[lanes];
  if constexpr (takes_largest) {
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) result[lane] = -__int_as_float(0x7f800000);
#pragma unroll
    for (int k = 0; k < kernel_height; ++k) {
      const Index in_row = row * stride_height - padding_height + k * dilation_height;
      if (in_row < 0 || in_row >= height) continue;
#pragma unroll
      for (int j = 0; j < kernel_width; ++j) {
        const Index in_column = column * stride_width - padding_width + j * dilation_width;
        if (in_column < 0 || in_column >= width) continue;
        const auto pixel = load<lanes>(from + in_row * x_row + in_column * x_column);
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) {
          const float value = widen(pixel.at[lane]);
          if (value > result[lane] || fn::is_nan(value)) result[lane] = value;
        }
      }
    }
  } else {
    Index first_row, end_row, first_column, end_column;
    if constexpr (is_adaptive) {
      first_row = row * height / out_height;
      end_row = ((row + 1) * height + out_height - 1) / out_height;
      first_column = column * width / out_width;
      end_column = ((column + 1) * width + out_width - 1) / out_width;
    } else {
      first_row = row * stride_height - padding_height;
      end_row = ::min(first_row + Index(kernel_height), Index(height + padding_height));
      first_column = column * stride_width - padding_width;
      end_column = ::min(first_column + Index(kernel_width), Index(width + padding_width));
    }
    const Index whole_window = (end_row - first_row) * (end_column - first_column);
    first_row = ::max(first_row, Index(0));
    end_row = ::min(end_row, Index(height));
    first_column = ::max(first_column, Index(0));
    end_column = ::min(end_column, Index(width));
    const Index inside = (end_row - first_row) * (end_column - first_column);
    const bool is_empty = first_row >= end_row || first_column >= end_column;
    const Index divisor =
        divisor_override != 0 ? Index(divisor_override) : (counts_padding ? whole_window : inside);

    float sum[lanes] = {};
    for (Index in_row = first_row; in_row < end_row; ++in_row) {
#pragma unroll 4
      for (Index in_column = first_column; in_column < end_column; ++in_column) {
        const auto pixel = load<lanes>(from + in_row * x_row + in_column * x_column);
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) sum[lane] += widen(pixel.at[lane]);
      }
    }
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      result[lane] = is_empty ? 0.0f : sum[lane] / static_cast<float>(divisor);
    }
  }

  Vector<T, lanes> out;
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    // Rounded before the activation, as if it had been in memory in between.
    out.at[lane] = Narrow<T>::of(after(as<T>(result[lane])));
  }
  store(y + image * y_image + channel * y_channel + row * y_row + column * y_column, out);
}
