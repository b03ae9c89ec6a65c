// The mean of each channel over a whole image. A block takes `block_channels` neighbouring channels; its
// threads share the pixels and add up what each found.
extern "C" __global__ void __launch_bounds__(threads) nimble_kernel(const T* x, T* y) {
  after_earlier_kernels(x, y);
  constexpr int slices = threads / block_channels;
  __shared__ float found[slices][block_channels];
  const int lane = threadIdx.x % block_channels, slice = threadIdx.x / block_channels;
  const Index blocks_of_image = (channels + block_channels - 1) / block_channels;
  const Index image = blockIdx.x / blocks_of_image;
  const Index channel = blockIdx.x % blocks_of_image * block_channels + lane;

  float sum = 0.0f;
  if (channel < channels) {
    const T* const from = x + image * x_image + channel * x_channel;
#pragma unroll 4
    for (Index pixel = slice; pixel < height * width; pixel += slices) {
      sum += widen(from[pixel / width * x_row + pixel % width * x_column]);
    }
  }
  found[slice][lane] = sum;
  __syncthreads();
  for (int half = slices / 2; half > 0; half /= 2) {
    if (slice < half) found[slice][lane] += found[slice + half][lane];
    __syncthreads();
  }
  if (slice == 0 && channel < channels) {
    const float mean = found[0][lane] / static_cast<float>(height * width);
    y[image * y_image + channel * y_channel] = Narrow<T>::of(after(as<T>(mean)));
  }
}
