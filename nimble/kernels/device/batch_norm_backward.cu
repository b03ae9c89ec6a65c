// The way back through an activation and a batch norm. The first pass adds up what every number of a channel
// has to do with its mean and its deviation, the second takes that from each.
extern "C" __global__ void __launch_bounds__(threads)
    nimble_kernel(const T* gradient, const T* x, const float* weight, const float* bias, const float* mean,
                  const float* inverse_deviation, T* x_gradient, float* weight_gradient, float* bias_gradient,
                  float* found) {
  after_earlier_kernels(gradient, x, weight, bias, mean, inverse_deviation, x_gradient, weight_gradient,
                        bias_gradient, found);
  const Part part;
  const Index channel = part.channel;
  const float inverse = inverse_deviation[channel];
  const Normalise normalise{mean[channel], inverse * weight[channel], bias[channel]};
  // What the activation lets through.
  const auto arriving = [&](T given, T at) { return passes(normalise(widen(at))) ? widen(given) : 0.0f; };
  Vector<T, lanes> kept[keeps ? items : 1], kept_gradient[keeps ? items : 1];
  Sums sums = {0.0f, 0.0f};  // of the gradient, and of it times how far its number is from the mean
  if constexpr (is_first) {
    part.for_each([&](int item, Index vector) {
      const Index place = part.place(vector);
      const auto values = load<lanes>(x + place), given = load<lanes>(gradient + place);
      if constexpr (keeps) {
        kept[item] = values;
        kept_gradient[item] = given;
      }
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        const float arrives = arriving(given.at[lane], values.at[lane]);
        sums.first += arrives;
        sums.second = fn::multiply_add(arrives, widen(values.at[lane]) - normalise.mean, sums.second);
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
  const float of_mean = sums.first / elements, of_deviation = sums.second / elements * inverse * inverse;
  part.for_each([&](int item, Index vector) {
    const Index place = part.place(vector);
    Vector<T, lanes> values, given;
    if constexpr (keeps) {
      values = kept[item];
      given = kept_gradient[item];
    } else {
      values = load<lanes>(x + place);
      given = load<lanes>(gradient + place);
    }
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      const float apart = widen(values.at[lane]) - normalise.mean;
      const float rest = arriving(given.at[lane], values.at[lane]) - of_mean;
      values.at[lane] = Narrow<T>::of(fn::multiply_add(-apart, of_deviation, rest) * normalise.scale);
    }
    store(x_gradient + place, values);
  });
  if (part.number == 0 && threadIdx.x == 0) {
    weight_gradient[channel] = sums.second * inverse;
    bias_gradient[channel] = sums.first;
  }
}
