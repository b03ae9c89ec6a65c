// Element types as they lie in memory, and the types that arithmetic is done in.
struct Half {
  unsigned short bits;
};
struct BFloat16 {
  unsigned short bits;
};

template <class T>
struct Arithmetic {
  using type = T;
};
template <>
struct Arithmetic<Half> {
  using type = float;
};
template <>
struct Arithmetic<BFloat16> {
  using type = float;
};
template <class T>
using arithmetic_t = typename Arithmetic<T>::type;

template <class T>
__device__ inline T widen(T value) {
  return value;
}
__device__ inline float widen(Half value) { return half_to_float(value.bits); }
__device__ inline float widen(BFloat16 value) { return bfloat16_to_float(value.bits); }

template <class T>
struct Narrow {
  template <class From>
  __device__ static T of(From value) {
    return static_cast<T>(value);
  }
};
template <>
struct Narrow<Half> {
  __device__ static Half of(float value) { return {float_to_half(value)}; }
};
template <>
struct Narrow<BFloat16> {
  __device__ static BFloat16 of(float value) { return {float_to_bfloat16(value)}; }
};

// What is left of a value once it has been in memory as a T, as between two kernels.
template <class T, class From>
__device__ inline arithmetic_t<T> as(From value) {
  return widen(Narrow<T>::of(value));
}

template <bool first, class A, class B>
struct Select {
  using Type = A;
};
template <class A, class B>
struct Select<false, A, B> {
  using Type = B;
};

// Elements that one instruction loads or stores.
template <class T, int N>
struct alignas(sizeof(T) * N) Vector {
  T at[N];
};

template <int N, class T>
__device__ inline Vector<T, N> load(const T* from) {
  return *reinterpret_cast<const Vector<T, N>*>(from);
}

template <int N, class T>
__device__ inline void store(T* to, const Vector<T, N>& values) {
  *reinterpret_cast<Vector<T, N>*>(to) = values;
}

// The same, as the words that were loaded: halves are taken out of one where they are used. Done right behind
// the load, that would wait for it before the next load is on its way.
template <class T, int N>
struct Packed {
  static constexpr bool holds_pairs = sizeof(T) == 2 && N > 1;
  using Word = typename Select<holds_pairs, unsigned, T>::Type;
  Vector<Word, holds_pairs ? N / 2 : N> words;

  __device__ auto at(int n) const {
    if constexpr (holds_pairs) {
      return widen(T{static_cast<unsigned short>(words.at[n / 2] >> n % 2 * 16)});
    } else {
      return widen(words.at[n]);
    }
  }
};

template <int N, class T>
__device__ inline Packed<T, N> load_packed(const T* from) {
  using Word = typename Packed<T, N>::Word;
  constexpr int words = Packed<T, N>::holds_pairs ? N / 2 : N;
  return {load<words>(reinterpret_cast<const Word*>(from))};
}
