#include "nimble/torch/tensor_ref.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace nimble {
namespace {

TensorRef ref(const at::Tensor& tensor) { return describe(tensor, BufferId{0}); }

TEST(TensorRef, ByteRangeSpansTheElementsOfAView) {
  const at::Tensor base = torch::zeros({4, 8});
  const ByteRange row = byte_range(ref(base[1]));
  EXPECT_EQ(row.begin, 32u);
  EXPECT_EQ(row.end, 64u);
}

TEST(TensorRef, ZeroSizeTensorsTouchNoBytes) { EXPECT_TRUE(byte_range(ref(torch::zeros({0, 3}))).empty()); }

TEST(TensorRef, HalvesOfATensorDoNotOverlap) {
  const at::Tensor base = torch::zeros({4, 8});
  EXPECT_FALSE(may_overlap(ref(base.slice(0, 0, 2)), ref(base.slice(0, 2, 4))));
}

// x[:, :3] and x[:, 3:] interleave in memory row by row, yet share nothing.
TEST(TensorRef, ColumnBlocksDoNotOverlapAlthoughTheirRangesDo) {
  const at::Tensor base = torch::zeros({4, 8});
  EXPECT_FALSE(may_overlap(ref(base.slice(1, 0, 3)), ref(base.slice(1, 3, 8))));
  EXPECT_TRUE(may_overlap(ref(base.slice(1, 0, 4)), ref(base.slice(1, 3, 8))));
}

// Against brute force: every pair of slices of a small tensor, element by element.
TEST(TensorRef, MayOverlapNeverMissesASharedElement) {
  const at::Tensor base = torch::zeros({3, 4, 5});
  std::vector<at::Tensor> views;
  for (int dim = 0; dim < 3; ++dim) {
    for (std::int64_t a = 0; a < base.size(dim); ++a) {
      for (std::int64_t b = a + 1; b <= base.size(dim); ++b) {
        views.push_back(base.slice(dim, a, b));
        views.push_back(base.slice(dim, a, b).transpose(0, 2));
        views.push_back(base.slice(dim, a, b, 2));
      }
    }
  }
  const auto elements = [](const at::Tensor& view) {
    std::set<std::int64_t> found;
    const TensorRef r = ref(view);
    for (std::int64_t i = 0; i < view.size(0); ++i) {
      for (std::int64_t j = 0; j < view.size(1); ++j) {
        for (std::int64_t k = 0; k < view.size(2); ++k) {
          found.insert(r.offset + i * r.strides[0] + j * r.strides[1] + k * r.strides[2]);
        }
      }
    }
    return found;
  };
  std::size_t told_apart = 0;
  for (const at::Tensor& a : views) {
    const auto in_a = elements(a);
    for (const at::Tensor& b : views) {
      const auto in_b = elements(b);
      const bool share =
          std::any_of(in_b.begin(), in_b.end(), [&](std::int64_t e) { return in_a.contains(e); });
      if (share) {
        EXPECT_TRUE(may_overlap(ref(a), ref(b))) << to_string(ref(a)) << " and " << to_string(ref(b));
      }
      told_apart += !share && !may_overlap(ref(a), ref(b));
    }
  }
  EXPECT_GT(told_apart, views.size());  // and it is not so careful as to be useless
}

TEST(TensorRef, CoversWhatItsElementsLeaveNothingOf) {
  const at::Tensor base = torch::zeros({3, 4});
  EXPECT_TRUE(covers(ref(base), ref(base.slice(1, 1, 3))));
  EXPECT_TRUE(covers(ref(base.t()), ref(base)));
  EXPECT_FALSE(covers(ref(base[1]), ref(base)));
  const at::Tensor columns = base.slice(1, 0, 2);
  EXPECT_TRUE(covers(ref(columns), ref(columns)));
  EXPECT_FALSE(covers(ref(columns), ref(columns[0])));  // it is, but nobody asks
  // As many elements as lie between the first and the last, but none of those.
  EXPECT_FALSE(covers(ref(base.as_strided({2, 2}, {0, 3})), ref(base[0].slice(0, 1, 3))));
}

TEST(TensorRef, AllBytesOfAStorageAreThoseBesideAViewToo) {
  const at::Tensor base = torch::arange(6, at::kInt);
  const at::Tensor bytes = all_bytes_of(base.slice(0, 2, 3).storage());
  EXPECT_TRUE(at::equal(bytes.view(at::kInt), base));
}

TEST(TensorRef, MaterializedTensorLooksAtTheSameElements) {
  const at::Tensor base = torch::arange(24.).view({2, 3, 4});
  for (const at::Tensor& view :
       {base, base.transpose(0, 2), base.slice(2, 1, 4, 2), base[1], base.expand({2, 3, 4})}) {
    EXPECT_TRUE(at::equal(materialize(ref(view), base.storage()), view));
  }
  const at::Tensor complex = torch::randn({3}, at::kComplexFloat);
  EXPECT_TRUE(at::equal(materialize(ref(complex.conj()), complex.storage()), complex.conj()));
  EXPECT_TRUE(
      at::equal(materialize(ref(at::imag(complex.conj())), complex.storage()), at::imag(complex.conj())));
}

}  // namespace
}  // namespace nimble
