// Several products of the same pixels: each is made by the blocks from its first one on.
struct Member {
  const T* weight;
  const T* bias;
  T* y;
  long long y_step, channels, first_block;
};
struct Table {
  const T* x;
  Member members[products];
};

// The last that does not begin behind this block. By numbers that the compiler knows, so that the table stays
// where it is.
__device__ inline Member member_of_block(const Table& table) {
  Member member = table.members[0];
#pragma unroll
  for (int m = 1; m < products; ++m) {
    if (table.members[m].first_block <= static_cast<long long>(blockIdx.x)) member = table.members[m];
  }
  return member;
}

extern "C" __global__ void __launch_bounds__(threads) nimble_kernel(const __grid_constant__ Table table) {
  const T* x = table.x;
  Member member = member_of_block(table);
  after_earlier_kernels(x, member.weight, member.bias, member.y);
  const Product product = {member.weight, member.bias, member.y, static_cast<Index>(member.y_step),
                           static_cast<Index>(member.channels)};
  make_tile(product, x, nullptr, nullptr, nullptr, blockIdx.x - static_cast<unsigned>(member.first_block));
}
