// activation(batch norm(x) + added), with the statistics of this batch. The first pass looks at them, the
// second uses them; a block that has a channel to itself does both, and reads it once.

// A number near the mean of a channel: that of a few that are spread over it. Squares are taken of how far
// numbers are from it, so that of numbers far from zero nothing is lost.
__device__ inline float near_mean(const T* x, Index channel) {
  constexpr Index elements = images * pixels, apart = elements < kWarp ? 1 : elements / kWarp;
  const Index element = min(Index(threadIdx.x % kWarp) * apart, elements - 1);
  const float sample = widen(x[(element / pixels * channels + channel) * pixels + element % pixels]);
  return over_warp({sample, 0.0f}).first / float(kWarp);
}

extern "C" __global__ void __launch_bounds__(threads)
    nimble_kernel(const T* x, const T* added, const float* weight, const float* bias, float* running_mean,
                  float* running_variance, T* y, float* mean, float* inverse_deviation, float* found) {
  after_earlier_kernels(x, added, weight, bias, running_mean, running_variance, y, mean, inverse_deviation,
                        found);
  const Part part;
  const Index channel = part.channel;
  // All that is needed once, before anybody waits for it.
  const float gamma = weight[channel], beta = bias[channel];
  const float mean_before = tracks ? running_mean[channel] : 0.0f;
  const float variance_before = tracks ? running_variance[channel] : 0.0f;
  const float middle = near_mean(x, channel);
  Vector<T, lanes> kept[keeps ? items : 1];
  Sums sums = {0.0f, 0.0f};  // of how far the numbers are from the middle, and of the squares of that
  if constexpr (is_first) {
    part.for_each([&](int item, Index vector) {
      const auto values = load<lanes>(x + part.place(vector));
      if constexpr (keeps) kept[item] = values;
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        const float apart = widen(values.at[lane]) - middle;
        sums.first += apart;
        sums.second = fn::multiply_add(apart, apart, sums.second);
      }
    });
    sums = over_block(sums);
  }
  if constexpr (!is_last) {
    leave(sums, part, found);
    return;
  }
  if constexpr (!is_first) sums = over_parts(found, part);

  constexpr float elements = float(images * pixels);
  const float rest = sums.first / elements, batch_mean = middle + rest;
  const float squares = fn::larger(fn::multiply_add(-sums.first, rest, sums.second), 0.0f);
  const float inverse = ::rsqrt(squares / elements + epsilon);
  const Normalise normalise{batch_mean, inverse * gamma, beta};
  part.for_each([&](int item, Index vector) {
    const Index place = part.place(vector);
    Vector<T, lanes> values, others;
    if constexpr (keeps) {
      values = kept[item];
    } else {
      values = load<lanes>(x + place);
    }
    if constexpr (adds) others = load<lanes>(added + place);
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      float value = normalise(widen(values.at[lane]));
      if constexpr (adds) value = as<T>(value) + widen(others.at[lane]);
      values.at[lane] = Narrow<T>::of(after(value));
    }
    store(y + place, values);
  });
  if (part.number == 0 && threadIdx.x == 0) {
    mean[channel] = batch_mean;
    inverse_deviation[channel] = inverse;
    if constexpr (tracks) {
      const float unbiased = squares / (elements - 1.0f);
      running_mean[channel] = fn::multiply_add(batch_mean - mean_before, momentum, mean_before);
      running_variance[channel] = fn::multiply_add(unbiased - variance_before, momentum, variance_before);
    }
  }
}
