#include "nimble/torch/calls_apart.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nimble/torch/operator_facts.h"

namespace nimble {
namespace {

constexpr std::int64_t kMi = 1 << 20;

// On a GPU, as far as anybody can see who does not touch its memory.
at::Tensor without_gpu(std::int64_t elements) {
  const auto bytes = static_cast<std::size_t>(elements) * sizeof(float);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       c10::DataPtr(nullptr, c10::Device(c10::kCUDA, 0)), nullptr, false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), caffe2::TypeMeta::Make<float>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({elements});
  return tensor;
}

// How many tensors each call gets of a list of these sizes.
std::vector<std::size_t> stretches(const char* op, std::initializer_list<std::int64_t> sizes) {
  std::vector<at::Tensor> tensors;
  for (const std::int64_t size : sizes) tensors.push_back(without_gpu(size));
  std::vector<std::size_t> lengths;
  for (const auto& call : calls_apart(find_operator(op, "Scalar"), {tensors, at::Scalar(2.0)})) {
    lengths.push_back(call[0].toListRef().size());
  }
  return lengths;
}

using Lengths = std::vector<std::size_t>;

TEST(CallsApart, LargeListsAreCutIntoStretches) {
  for (const char* op : {"aten::_foreach_mul", "aten::_foreach_mul_"}) {
    EXPECT_EQ(stretches(op, {8 * kMi, 8 * kMi}), (Lengths{1, 1}));
    EXPECT_EQ(stretches(op, {4 * kMi, 4 * kMi, 4 * kMi, 4 * kMi}), (Lengths{2, 2}));
  }
}

TEST(CallsApart, SmallListsAreNot) { EXPECT_EQ(stretches("aten::_foreach_mul", {kMi, kMi}), Lengths{}); }

TEST(CallsApart, TensorsWithoutElementsAtTheEndBelongToTheLastStretch) {
  EXPECT_EQ(stretches("aten::_foreach_mul", {8 * kMi, 8 * kMi, 0}), (Lengths{1, 2}));
  EXPECT_EQ(stretches("aten::_foreach_mul", {4 * kMi, 4 * kMi, 4 * kMi, 4 * kMi, 1, 0}), (Lengths{3, 3}));
}

TEST(CallsApart, WhatLooksAtAllOfATensorIsNotCut) {
  std::vector<at::Tensor> tensors = {without_gpu(8 * kMi), without_gpu(8 * kMi)};
  const torch::jit::Stack stack = {tensors, at::Scalar(2), c10::IValue()};
  EXPECT_TRUE(calls_apart(find_operator("aten::_foreach_norm", "Scalar"), stack).empty());
}

}  // namespace
}  // namespace nimble
