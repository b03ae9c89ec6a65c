// One thread makes one pixel of `lanes` channels. `Index` and the constants come from the host: sizes,
// strides in elements, how the work is laid out, and which pooling it is.
extern "C" __global__ void __launch_bounds__(threads) nimble_kernel(const T* x, T* y) {
  after_earlier_kernels(x, y);
  const Index number = static_cast<Index>(blockIdx.x) * threads + threadIdx.x;
  Index rest = number < work ? number : work - 1;  // all go on: the block has to meet
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
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) result[lane] = takes_largest ? -__int_as_float(0x7f800000) : 0.0f;

  // Those under the window, row by row, and whether they are inside the image: else they are zero. As many
  // loads as registers hold are under way together, for the reason that depthwise.cu tells; but a zero to be
  // added the compiler leaves out where the sum is of minus infinity.
  const auto for_each_pixel = [&](const auto& take) {
    constexpr int pixels = kernel_height * kernel_width;
#pragma unroll 1
    for (int first = 0; first < pixels; first += ahead) {
      Packed<T, lanes> loaded[ahead];
      bool inside[ahead];
#pragma unroll
      for (int n = 0; n < ahead; ++n) {
        const int k = (first + n) / kernel_width, j = (first + n) % kernel_width;
        const Index in_row = row * stride_height - padding_height + k * dilation_height;
        const Index in_column = column * stride_width - padding_width + j * dilation_width;
        inside[n] =
            first + n < pixels && in_row >= 0 && in_row < height && in_column >= 0 && in_column < width;
        loaded[n] = {};
        if (inside[n]) loaded[n] = load_packed<lanes>(from + in_row * x_row + in_column * x_column);
      }
      const bool never = __syncthreads_or(0);
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) result[lane] = never ? 1.0f : result[lane];
#pragma unroll
      for (int n = 0; n < ahead; ++n) take(loaded[n], inside[n]);
    }
  };

  if constexpr (takes_largest) {
    for_each_pixel([&](const auto& pixel, bool inside) {
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        const float value = pixel.at(lane);
        if (inside && (value > result[lane] || fn::is_nan(value))) result[lane] = value;
      }
    });
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

    const auto add = [&](const auto& pixel, bool) {
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) result[lane] += pixel.at(lane);
    };
    if constexpr (is_adaptive) {
      for (Index in_row = first_row; in_row < end_row; ++in_row) {
#pragma unroll 4
        for (Index in_column = first_column; in_column < end_column; ++in_column) {
          add(load_packed<lanes>(from + in_row * x_row + in_column * x_column), true);
        }
      }
    } else {
      for_each_pixel(add);
    }
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      result[lane] = is_empty ? 0.0f : result[lane] / static_cast<float>(divisor);
    }
  }

  if (number >= work) return;
  Vector<T, lanes> out;
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    // Rounded before the activation, as if it had been in memory in between.
    out.at[lane] = Narrow<T>::of(after(as<T>(result[lane])));
  }
  store(y + image * y_image + channel * y_channel + row * y_row + column * y_column, out);
}
