// Work on many tensors at once. A table tells where the tensors of each list lie, how long they are, and by
// which blocks they are worked on: each by those from its `first` on, `chunk` elements a block.

// The tensor of this block: the last that does not begin behind it.
template <class Table>
__device__ inline int tensor_of_block(const Table& table) {
  int low = 0, high = int(table.count) - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.first[middle] <= static_cast<long long>(blockIdx.x)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Whether the widest loads can begin at each of these addresses.
template <class... T>
__device__ inline bool are_aligned(const T*... pointers) {
  return ((reinterpret_cast<unsigned long long>(pointers) % 16 == 0) && ...);
}

template <int count>
struct Width {
  static constexpr int value = count;
};

// Calls work(Width, i) for the elements of this block's chunk, from the i-th on: for vectors of them where
// they are aligned, one by one where they are not, and for what is left.
template <int threads, int vector, class Table, class Work>
__device__ inline void over_chunk(const Table& table, int tensor, bool aligned, Work work) {
  long long i = (blockIdx.x - table.first[tensor]) * table.chunk;
  const long long end = min(i + table.chunk, table.sizes[tensor]);
  if (aligned) {
    const long long rest = end - (end - i) % vector;
    for (i += threadIdx.x * vector; i < rest; i += threads * vector) work(Width<vector>(), i);
    i = rest;
  }
  for (i += threadIdx.x; i < end; i += threads) work(Width<1>(), i);
}
