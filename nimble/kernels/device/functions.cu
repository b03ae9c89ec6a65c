// Pointwise functions, each with the arithmetic of ATen's CUDA kernel: the same operations in the same order.
// Where ATen's compiler contracts a product and a sum inside one kernel, `multiply_add` says so.
namespace fn {

__device__ inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return fma(a, b, c); }
template <class F>
__device__ inline F multiply_add(F a, F b, F c) {
  return a * b + c;
}

template <class F>
__device__ inline bool is_nan(F value) {
  return value != value;
}
// Both pass NaN on.
template <class F>
__device__ inline F larger(F a, F b) {
  return is_nan(a) ? a : (is_nan(b) ? b : ::max(a, b));
}
template <class F>
__device__ inline F smaller(F a, F b) {
  return is_nan(a) ? a : (is_nan(b) ? b : ::min(a, b));
}
__device__ inline float larger(float a, float b) { return max_or_nan(a, b); }
__device__ inline float smaller(float a, float b) { return min_or_nan(a, b); }

template <class F>
__device__ inline F identity(F x) {
  return x;
}
template <class F>
__device__ inline F neg(F x) {
  return -x;
}
template <class F>
__device__ inline F sgn(F x) {
  return F((F(0) < x) - (x < F(0)));
}
template <class F>
__device__ inline F abs(F x) {
  return x < F(0) ? -x : (x == F(0) ? F(0) : x);
}
template <class F>
__device__ inline F exp(F x) {
  return ::exp(x);
}
template <class F>
__device__ inline F log(F x) {
  return ::log(x);
}
template <class F>
__device__ inline F log1p(F x) {
  return ::log1p(x);
}
template <class F>
__device__ inline F sqrt(F x) {
  return ::sqrt(x);
}
template <class F>
__device__ inline F rsqrt(F x) {
  return ::rsqrt(x);
}
template <class F>
__device__ inline F reciprocal(F x) {
  return F(1) / x;
}
template <class F>
__device__ inline F erf(F x) {
  return ::erf(x);
}
template <class F>
__device__ inline F sin(F x) {
  return ::sin(x);
}
template <class F>
__device__ inline F cos(F x) {
  return ::cos(x);
}
template <class F>
__device__ inline F floor(F x) {
  return ::floor(x);
}
template <class F>
__device__ inline F ceil(F x) {
  return ::ceil(x);
}
template <class F>
__device__ inline F tanh(F x) {
  return ::tanh(x);
}
template <class F>
__device__ inline F sigmoid(F x) {
  return F(1) / (F(1) + ::exp(-x));
}

template <class F>
__device__ inline F clamp_min(F x, F low) {
  return is_nan(x) ? x : ::max(x, low);
}
template <class F>
__device__ inline F clamp_max(F x, F high) {
  return is_nan(x) ? x : ::min(x, high);
}
template <class F>
__device__ inline F clamp(F x, F low, F high) {
  return clamp_max(clamp_min(x, low), high);
}
template <class F>
__device__ inline F relu(F x) {
  return larger(x, F(0));
}
template <class F>
__device__ inline F relu6(F x) {
  return smaller(larger(x, F(0)), F(6));
}
template <class F>
__device__ inline F hardtanh_backward(F gradient, F x, F low, F high) {
  return x <= low || x >= high ? F(0) : gradient;
}
template <class F>
__device__ inline F silu(F x) {
  return x / (F(1) + ::exp(-x));
}
template <class F>
__device__ inline F hardsigmoid(F x) {
  return smaller(larger(x + F(3), F(0)), F(6)) * F(1.0f / 6.0f);
}
template <class F>
__device__ inline F hardswish(F x) {
  return x * smaller(larger(x + F(3), F(0)), F(6)) * F(1.0f / 6.0f);
}
template <class F>
__device__ inline F leaky_relu(F x, F slope) {
  return x > F(0) ? x : x * slope;
}
template <class F>
__device__ inline F gelu(F x) {
  return x * F(0.5) * (F(1) + ::erf(x * F(0.70710678118654752440)));
}
template <class F>
__device__ inline F gelu_tanh(F x) {
  const F kBeta = F(1.41421356237309504880 * 1.12837916709551257390 * 0.5), kKappa = F(0.044715);
  return F(0.5) * x * (F(1) + ::tanh(kBeta * multiply_add(kKappa, x * x * x, x)));
}

// The ways back through activations: `gradient` of the result, and what the activation was given.
template <class F>
__device__ inline F silu_backward(F gradient, F x) {
  const F open = F(1) / (F(1) + ::exp(-x));
  return gradient * open * multiply_add(x, F(1) - open, F(1));
}
template <class F>
__device__ inline F hardsigmoid_backward(F gradient, F x) {
  return x > F(-3) && x < F(3) ? gradient * F(1.0f / 6.0f) : F(0);
}
template <class F>
__device__ inline F hardswish_backward(F gradient, F x) {
  return x <= F(-3) ? F(0) : (x < F(3) ? gradient * (x / F(3) + F(0.5)) : gradient);
}
template <class F>
__device__ inline F leaky_relu_backward(F gradient, F x, F slope) {
  return x > F(0) ? gradient : gradient * slope;
}
template <class F>
__device__ inline F gelu_backward(F gradient, F x) {
  const F below = F(0.5) * (F(1) + ::erf(x * F(0.70710678118654752440)));
  const F density = ::exp(F(-0.5) * x * x) * F(1.12837916709551257390 * 0.70710678118654752440 * 0.5);
  return gradient * multiply_add(x, density, below);
}
template <class F>
__device__ inline F gelu_tanh_backward(F gradient, F x) {
  const F kBeta = F(1.41421356237309504880 * 1.12837916709551257390 * 0.5), kKappa = F(0.044715);
  const F squared = x * x, y = ::tanh(kBeta * multiply_add(kKappa, squared * x, x));
  const F slope = kBeta * multiply_add(F(3) * kKappa, squared, F(1));
  return gradient * multiply_add(F(0.5) * x * multiply_add(-y, y, F(1)), slope, F(0.5) * (F(1) + y));
}

// What is lost by giving `a` for `b`: squared where they are near, else by their distance.
template <class F>
__device__ inline F smooth_l1(F a, F b, F beta) {
  const F distance = ::fabs(a - b);
  return distance < beta ? F(0.5) * distance * distance / beta : distance - F(0.5) * beta;
}
template <class F>
__device__ inline F huber(F a, F b, F delta) {
  const F distance = ::fabs(a - b);
  return distance < delta ? F(0.5) * distance * distance : delta * (distance - F(0.5) * delta);
}

template <class F>
__device__ inline F add(F a, F b, F alpha) {
  return multiply_add(alpha, b, a);
}
template <class F>
__device__ inline F sub(F a, F b, F alpha) {
  return multiply_add(-alpha, b, a);
}
template <class F>
__device__ inline F rsub(F a, F b, F alpha) {
  return multiply_add(-alpha, a, b);
}
template <class F>
__device__ inline F mul(F a, F b) {
  return a * b;
}
template <class F>
__device__ inline F div(F a, F b) {
  return a / b;
}
// Of a number known to the host ATen takes the reciprocal once.
template <class F>
__device__ inline F div_by_number(F a, F b) {
  return a * (F(1) / b);
}
template <class F>
__device__ inline F square(F x) {
  return x * x;
}
template <class F>
__device__ inline F addcmul(F a, F b, F c, F value) {
  return value == F(1) ? multiply_add(b, c, a) : multiply_add(value, b * c, a);
}
template <class F>
__device__ inline F addcdiv(F a, F b, F c, F value) {
  return multiply_add(value, b / c, a);
}

// As ATen's kernels for lists of tensors have them.
template <class F>
__device__ inline F plus(F a, F b) {
  return a + b;
}
template <class F>
__device__ inline F minus(F a, F b) {
  return a - b;
}
// Of two zeros the second, whatever their signs.
template <class F>
__device__ inline F larger_or_second(F a, F b) {
  return is_nan(a) || a > b ? a : b;
}
template <class F>
__device__ inline F lerp(F from, F to, F weight) {
  return ::fabs(weight) < F(0.5) ? multiply_add(weight, to - from, from)
                                 : multiply_add(-(to - from), F(1) - weight, to);
}

template <class F>
__device__ inline bool eq(F a, F b) {
  return a == b;
}
template <class F>
__device__ inline bool ne(F a, F b) {
  return a != b;
}
template <class F>
__device__ inline bool lt(F a, F b) {
  return a < b;
}
template <class F>
__device__ inline bool le(F a, F b) {
  return a <= b;
}
template <class F>
__device__ inline bool gt(F a, F b) {
  return a > b;
}
template <class F>
__device__ inline bool ge(F a, F b) {
  return a >= b;
}
template <class F>
__device__ inline F where(bool condition, F a, F b) {
  return condition ? a : b;
}
template <class F>
__device__ inline F masked_fill(F x, bool mask, F value) {
  return mask ? value : x;
}

// What ATen computes in the type T of memory: each operation rounds to it.
template <class T>
__device__ inline arithmetic_t<T> pow(arithmetic_t<T> x, arithmetic_t<T> exponent) {
  return ::pow(x, exponent);
}
template <class T>
__device__ inline arithmetic_t<T> cube(arithmetic_t<T> x) {
  return as<T>(x * x) * x;
}
template <class T>
__device__ inline arithmetic_t<T> squared_difference(arithmetic_t<T> a, arithmetic_t<T> b) {
  const arithmetic_t<T> difference = as<T>(a - b);
  return difference * difference;
}
template <class T>
__device__ inline arithmetic_t<T> inverse_square(arithmetic_t<T> x) {
  return arithmetic_t<T>(1) / as<T>(x * x);
}
template <class T>
__device__ inline arithmetic_t<T> threshold_backward(arithmetic_t<T> gradient, arithmetic_t<T> x,
                                                     arithmetic_t<T> threshold) {
  return x <= threshold ? arithmetic_t<T>(0) : gradient;
}
template <class T>
__device__ inline arithmetic_t<T> sigmoid_backward(arithmetic_t<T> gradient, arithmetic_t<T> y) {
  return as<T>(gradient * as<T>(arithmetic_t<T>(1) - y)) * y;
}
template <class T>
__device__ inline arithmetic_t<T> tanh_backward(arithmetic_t<T> gradient, arithmetic_t<T> y) {
  using F = arithmetic_t<T>;
  constexpr bool kRounds = sizeof(T) < sizeof(F);
  return gradient * (kRounds ? as<T>(F(1) - as<T>(y * y)) : multiply_add(-y, y, F(1)));
}

}  // namespace fn
