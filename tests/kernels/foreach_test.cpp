// Generated kernels for lists of tensors, run on the host, against the calls of ATen that they stand for.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nimble/core/error.h"
#include "nimble/kernels/element_source.h"
#include "nimble/kernels/foreach_pointwise.h"
#include "tests/kernels/host_device.h"

namespace nimble::kernels {
namespace {

using List = std::vector<at::Tensor>;

List flat(const std::vector<List>& lists) {
  List all;
  for (const List& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}
std::vector<List> copies(const std::vector<List>& lists) {
  std::vector<List> copied;
  for (const List& list : lists) {
    List& copy = copied.emplace_back();
    // Aligned alike: unaligned tensors must stay so.
    for (const at::Tensor& tensor : list) {
      const at::Tensor whole = at::empty({tensor.storage_offset() + tensor.numel()}, tensor.options());
      copy.push_back(
          whole.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset()).copy_(tensor));
    }
  }
  return copied;
}

// What the kernel makes of lists: those that it was given, changed, and then the new ones.
std::vector<List> run_kernel(const std::string& text, const Lists& given) {
  const Expression expression = parse_expression(text);
  Lists lists = given;
  auto forms = forms_of(lists);
  EXPECT_FALSE(forms.empty());
  while (lists.written.size() + lists.made.size() < expression.results.size()) {
    const List model = (lists.written.empty() ? lists.read : lists.written).front();
    List& made = lists.made.emplace_back();
    for (const at::Tensor& tensor : model) made.push_back(at::empty_like(tensor));
    forms.push_back(forms.front());
  }
  KernelSource kernel = foreach_source(expression, forms, lists.written.size());
  for (const TableLaunch& launch : table_launches(lists)) {
    EXPECT_LE(launch.table.size() * sizeof(std::uint64_t), 4096u);
    kernel.blocks = launch.blocks;
    testing::run_with_table_on_host(kernel, launch.table);
  }
  std::vector<List> results = lists.written;
  results.insert(results.end(), lists.made.begin(), lists.made.end());
  return results;
}

// Every bit of what ATen's calls on the host give, which has to be right there already: no product that a
// GPU would contract with a sum.
void expect_same(const std::string& text, const std::vector<List>& written, const std::vector<List>& read) {
  const std::vector<List> expected = copies(written);
  const auto count = static_cast<std::int64_t>((read.empty() ? written : read).front().size());
  const List made = foreach_pointwise(flat(expected), flat(read), text, count);
  List wanted = flat(expected);
  wanted.insert(wanted.end(), made.begin(), made.end());
  const List given = flat(run_kernel(text, {.written = copies(written), .read = read}));
  ASSERT_EQ(given.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(at::allclose(given[i], wanted[i], 0, 0, /*equal_nan=*/true)) << text << ", tensor " << i;
  }
}

List random(const std::vector<std::vector<std::int64_t>>& shapes, at::ScalarType type = at::kFloat) {
  List list;
  for (const auto& shape : shapes) list.push_back(at::randn(shape).to(type));
  return list;
}
const std::vector<std::vector<std::int64_t>> kShapes = {{3, 5}, {1},       {},      {4096 + 7},
                                                        {0},    {2, 0, 3}, {64, 32}};

const std::string kSums =
    "%0 = _foreach_mul.Scalar(x0, 0.9); %1 = _foreach_add.List(%0, x2, 1); "
    "%2 = _foreach_sub.List(x1, %1, 1); return %1, %2";

TEST(ForeachTest, EveryTensorOfEveryListIsChangedOnce) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    expect_same(kSums, {random(kShapes, type), random(kShapes, type)}, {random(kShapes, type)});
  }
}

TEST(ForeachTest, ManyTensorsTakeSeveralTables) {
  const std::vector<std::vector<std::int64_t>> shapes(300, {17});
  const Lists lists = {.written = {random(shapes), random(shapes)}, .read = {random(shapes)}};
  EXPECT_EQ(table_launches(lists).size(), 3u);  // 102 tensors in each
  expect_same(kSums, lists.written, lists.read);
}

TEST(ForeachTest, LargeTensorsAreWorkedOnByManyBlocks) {
  const Lists small = {.written = {random({{5000}, {1}})}, .read = {}};
  EXPECT_EQ(table_launches(small)[0].blocks, 6u);
  const Lists large = {.written = {{at::empty({1 << 23}), at::empty({4097})}}, .read = {}};
  EXPECT_EQ(table_launches(large)[0].blocks, (1u << 23) / 4096 + 2);
  expect_same("%0 = _foreach_neg(x0); return %0", {random({{70000}, {3}, {9001}})}, {});
}

TEST(ForeachTest, TensorsThatAreNotAlignedAreWorkedOnElementByElement) {
  for (const std::int64_t offset : {1, 2, 3}) {
    const auto shifted = [&] { return List{at::randn({1000 + offset}).slice(0, offset), at::randn({999})}; };
    expect_same(kSums, {shifted(), random({{1000}, {999}})}, {random({{1000}, {999}})});
    expect_same(kSums, {shifted(), shifted()}, {shifted()});
  }
}

TEST(ForeachTest, AnyLayoutWithoutGapsWillDo) {
  const auto channels_last = [] {
    return List{at::randn({4, 3, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast), at::randn({7, 3}).t()};
  };
  expect_same(kSums, {channels_last(), channels_last()}, {channels_last()});
}

TEST(ForeachTest, TensorsWithoutADimensionAreNumbers) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const List rate(3, at::scalar_tensor(0.3).to(type));
    expect_same("%0 = _foreach_div.List(x0, x1); %1 = _foreach_mul.List(%0, x2); return %1",
                {random({{33}, {4, 4}, {}}, type)}, {random({{}, {}, {}}, type), rate});
  }
}

TEST(ForeachTest, NewListsComeBehindThoseThatAreChanged) {
  expect_same("%0 = _foreach_reciprocal(x1); %1 = _foreach_add.Scalar(x0, 2); return %1, %0, %1",
              {random({{9}, {70}})}, {List{at::rand({9}), at::rand({70})}});
  expect_same("%0 = _foreach_neg(x0); return %0", {}, {random({{9}, {70}})});
}

TEST(ForeachTest, EveryFunctionIsAtens) {
  const List x = {at::cat({at::randn({60}), at::tensor({0.0f, -0.0f, NAN, INFINITY})})},
             y = {at::randn({64})}, z = {at::rand({64}).add(0.5)};
  for (const std::string call :
       {"_foreach_neg(x0)", "_foreach_reciprocal(x0)", "_foreach_add.Scalar(x0, 0.3)",
        "_foreach_sub.Scalar(x0, 0.3)", "_foreach_mul.Scalar(x0, 0.3)", "_foreach_add.List(x0, x1, 1)",
        "_foreach_sub.List(x0, x1, 1)", "_foreach_mul.List(x0, x1)", "_foreach_div.List(x0, x2)",
        "_foreach_maximum.List(x0, x1)"}) {
    const std::string text = "%0 = " + call + "; %1 = _foreach_add.List(x1, x2, 1); return %0, %1";
    expect_same(text, {}, {x, y, z});
  }
}

// The arithmetic of ATen's kernels for a GPU: one rounding for a product and a sum, and for a root.
TEST(ForeachTest, EveryFunctionRoundsAsOnAGpu) {
  const List a = {at::randn({64})}, b = {at::randn({64})}, c = {at::rand({64}).add(0.5)};
  const auto expect_each = [&](const std::string& call, auto expected) {
    const std::string text = "%0 = " + call + "; %1 = _foreach_add.List(x1, x2, 1); return %0, %1";
    const List result = run_kernel(text, {.written = {}, .read = {a, b, c}}).front();
    for (std::int64_t i = 0; i < 64; ++i) {
      const auto at = [&](const List& list) { return list[0][i].item<float>(); };
      EXPECT_EQ(at(result), expected(at(a), at(b), at(c))) << call;
    }
  };
  expect_each("_foreach_add.List(x0, x1, 0.3)", [](float x, float y, float) { return std::fma(0.3f, y, x); });
  expect_each("_foreach_sub.List(x0, x1, 0.3)",
              [](float x, float y, float) { return std::fma(-0.3f, y, x); });
  expect_each("_foreach_sqrt(x2)", [](float, float, float z) { return std::sqrt(z); });
  // 1e-3 has another reciprocal in float32 than in double.
  expect_each("_foreach_div.Scalar(x0, 0.001)",
              [](float x, float, float) { return x * static_cast<float>(1 / 0.001); });
  expect_each("_foreach_lerp.Scalar(x0, x1, 0.1)",
              [](float x, float y, float) { return std::fma(0.1f, y - x, x); });
  expect_each("_foreach_lerp.Scalar(x0, x1, 0.9)",
              [](float x, float y, float) { return std::fma(-(y - x), 1 - 0.9f, y); });
  expect_each("_foreach_addcmul.Scalar(x0, x1, x2, 1)",
              [](float x, float y, float z) { return std::fma(y, z, x); });
  expect_each("_foreach_addcmul.Scalar(x0, x1, x2, 0.3)",
              [](float x, float y, float z) { return std::fma(0.3f, y * z, x); });
  expect_each("_foreach_addcdiv.Scalar(x0, x1, x2, -0.3)",
              [](float x, float y, float z) { return std::fma(-0.3f, y / z, x); });
}

TEST(ForeachTest, NothingIsContractedAcrossCalls) {
  const List a = {at::randn({64})}, b = {at::randn({64})}, c = {at::randn({64})};
  const List result =
      run_kernel("%0 = _foreach_mul.List(x0, x1); %1 = _foreach_add.List(%0, x2, 1); return %1",
                 {.written = {}, .read = {a, b, c}})
          .front();
  EXPECT_TRUE(at::equal(result[0], a[0] * b[0] + c[0]));
}

TEST(ForeachTest, OfTwoZerosTheSecondIsTheLarger) {
  const List positive = {at::zeros({4})}, negative = {-at::zeros({4})};
  const std::string larger = "%0 = _foreach_maximum.List(x0, x1); return %0";
  const auto is_negative = [&](const List& a, const List& b) {
    return run_kernel(larger, {.written = {}, .read = {a, b}})[0][0].signbit().all().item<bool>();
  };
  EXPECT_TRUE(is_negative(positive, negative));
  EXPECT_FALSE(is_negative(negative, positive));
}

TEST(ForeachTest, ListsThatNoKernelHandlesAreTold) {
  const List x = random({{4}, {3}});
  const auto has_forms = [&](const List& read) {
    return !forms_of({.written = {x}, .read = {read}}).empty();
  };
  EXPECT_TRUE(has_forms(random({{4}, {3}})));
  EXPECT_TRUE(has_forms(random({{}, {}}, at::kHalf)));
  EXPECT_FALSE(has_forms(random({{4}, {}}))) << "another shape";
  EXPECT_FALSE(has_forms(random({{4}, {3}}, at::kHalf))) << "another type";
  EXPECT_FALSE(has_forms({at::randn({4}), at::randn({6}).slice(0, 0, 6, 2)})) << "gaps";
  EXPECT_FALSE(has_forms({at::ones({}, at::kLong), at::ones({}, at::kLong)})) << "whole numbers";
  EXPECT_TRUE(forms_of({.written = {random({{}, {}})}, .read = {x}}).empty()) << "a number cannot hold it";
}

TEST(ForeachTest, TensorsThatAreNoListsAreRefused) {
  const List x = random({{4}, {3}});
  const std::string text = "%0 = _foreach_add.List(x0, x1, 1); return %0";
  EXPECT_THROW(foreach_pointwise(x, x, text, 3), InvalidInput);
  EXPECT_THROW(foreach_pointwise(x, {}, text, 2), InvalidInput);
  EXPECT_THROW(foreach_pointwise(x, x, text, 0), InvalidInput);
  EXPECT_THROW(foreach_pointwise(flat({x, x}), {}, text, 2), InvalidInput) << "one result for two lists";
}

}  // namespace
}  // namespace nimble::kernels
