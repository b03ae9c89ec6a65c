// Random networks under all rewrites at once, with what may stand in their way: writes in place between who
// makes a tensor and who reads it, arguments that are written, results written into slices, and weights that
// the program itself makes and changes.

#include <array>
#include <map>

#include "cuda/random_values.h"
#include "measured.h"
#include "norm.h"

namespace nimble {
namespace {

using Values = RandomValues;

// The same at each call.
class RandomNetwork {
 public:
  explicit RandomNetwork(std::uint64_t seed) : seed_(seed) {}

  // One argument to look at, and one that the network may write to.
  static Tensors inputs() { return {torch::randn({2, 4, 5, 8}), torch::randn({2, 4, 5, 8})}; }

  Tensors operator()(const Tensors& in) const {
    Values values({in[0], in[1], in[0] * in[1]}, /*made=*/2, seed_);
    values.grow(14, operations());
    return {values.last() * 1, values.pick() + 1, values.pick() + 1};
  }

 private:
  std::vector<Values::Operation> operations() const {
    return {
        [this](Values& v) { return activated(v, conv3(some(v))); },
        [this](Values& v) { return norm_(conv1(some(v))); },
        [this](Values& v) { return activated(v, norm_(conv3(some(v)))); },
        [this](Values& v) { return norm_(some(v)).relu(); },
        [this](Values& v) { return conv1(norm_(some(v))); },
        [this](Values& v) { return conv3(some(v)).add_(some(v)).relu_(); },
        [this](Values& v) { return norm_(joined(v)); },
        [this](Values& v) { return activated(v, joined(v)); },
        [this](Values& v) { return activated(v, linear(some(v), matrix_)).view(kShape); },
        [this](Values& v) {
          const at::Tensor x = some(v);
          return (linear(x, matrix_) * linear(x, other_matrix_)).sigmoid().view(kShape);
        },
        [](Values& v) { return (some(v) + some(v)) * 0.5; },
        [](Values& v) {
          const at::Tensor x = some(v);
          return at::silu(x) * at::silu(x).sigmoid();
        },
        [this](Values& v) { return at::conv2d(some(v), w1_ * 0.5, bias_.neg()); },
        // Of weights alone.
        [this](Values&) { return at::linear(matrix_, other_matrix_).slice(0, 0, 5).expand(kShape).clone(); },
        // Somebody else looks too.
        [this](Values& v) {
          const at::Tensor y = v.number_below(2) == 0 ? conv1(some(v)) : joined(v);
          return norm_(y) + y.sigmoid();
        },
        // Or at a part.
        [this](Values& v) {
          const at::Tensor part = at::conv2d(some(v), at::cat({w1_, w1_.neg()})).slice(1, 2, 6);
          return v.number_below(2) == 0 ? norm_(part) : activated(v, part);
        },
        // Somebody writes between who makes a tensor and who reads it.
        [this](Values& v) {
          const at::Tensor y = conv1(some(v));
          write(v, y);
          return norm_(y);
        },
        [this](Values& v) {
          const at::Tensor x = v.pick_own(), y = conv3(x);
          write(v, x);
          return activated(v, v.number_below(2) == 0 ? norm_(y) : y);
        },
        [this](Values& v) {
          const at::Tensor a = half_conv(some(v)), b = other_half_conv(some(v)), both = at::cat({a, b}, 1);
          write(v, v.number_below(2) == 0 ? a : both);
          return v.number_below(2) == 0 ? norm_(both) : both.relu();
        },
        [this](Values& v) {
          const at::Tensor weight = w1_ * 0.5, y = at::conv2d(some(v), weight);
          weight.slice(0, 0, v.number_below(2) == 0 ? 4 : 1).mul_(2);
          return v.number_below(2) == 0 ? norm_(y) : activated(v, y);
        },
        [this](Values& v) {
          const at::Tensor x = v.pick_own(), sum = conv3(some(v)) + x;
          write(v, x);
          return sum.relu();
        },
        [](Values& v) {
          write(v, v.number_below(3) == 0 ? v[1] : v.pick_own());
          return at::Tensor();
        },
        // Results are written into slices of something larger.
        [this](Values& v) {
          const at::Tensor both = at::zeros(kShape);
          at::Tensor first = both.slice(1, 0, 2), second = both.slice(1, 2, 4);
          at::silu_out(first, half_conv(some(v)));
          at::add_out(second, other_half_conv(some(v)), half_conv(some(v)));
          return both;
        },
        [this](Values& v) {
          const at::Tensor both = at::empty(kShape), x = joined(v);
          at::Tensor first = both.slice(0, 0, 1), second = both.slice(0, 1, 2);
          at::cat_out(first, {x.slice(0, 0, 1).slice(1, 2, 4), x.slice(0, 1, 2).slice(1, 0, 2)}, 1);
          at::mul_out(second, some(v).slice(0, 0, 1), norm_.gamma.view({4, 1, 1}));
          return norm_(both).relu();
        },
    };
  }

  // Seldom one from long ago, so that little of what is made is read by nobody.
  static at::Tensor some(Values& v) { return v.number_below(4) == 0 ? v.pick() : v.last(); }

  at::Tensor conv3(const at::Tensor& x) const { return at::conv2d(x, w3_, bias_, 1, 1); }
  at::Tensor conv1(const at::Tensor& x) const { return at::conv2d(x, w1_); }
  at::Tensor half_conv(const at::Tensor& x) const { return at::conv2d(x, half_); }
  at::Tensor other_half_conv(const at::Tensor& x) const {
    return at::conv2d(x, other_half_, half_bias_, 1, 1);
  }
  at::Tensor joined(Values& v) const { return at::cat({half_conv(some(v)), other_half_conv(some(v))}, 1); }
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight) const {
    return at::linear(x.reshape({-1, 8}), weight, row_bias_);
  }

  static at::Tensor activated(Values& v, const at::Tensor& x) {
    switch (v.number_below(4)) {
      case 0:
        return x.relu();
      case 1:
        return x.relu_();
      case 2:
        return at::hardtanh(x, -1, 1);
      default:
        return at::silu(x);
    }
  }

  // All of it, or a part.
  static void write(Values& v, const at::Tensor& x) {
    switch (v.number_below(4)) {
      case 0:
        x.mul_(0.5);
        break;
      case 1:
        x.select(0, 1).mul_(0.5);
        break;
      case 2:
        x.slice(1, 0, 2).relu_();
        break;
      default:
        x.slice(2, 1, 3).copy_(x.slice(2, 3, 5));
    }
  }

  static constexpr std::array<std::int64_t, 4> kShape = {2, 4, 5, 8};

  std::uint64_t seed_;
  at::Tensor w3_ = torch::randn({4, 4, 3, 3}) / 6, w1_ = torch::randn({4, 4, 1, 1}) / 2,
             half_ = torch::randn({2, 4, 1, 1}) / 2, other_half_ = torch::randn({2, 4, 3, 3}) / 6,
             bias_ = torch::randn({4}), half_bias_ = torch::randn({2}), matrix_ = torch::randn({8, 8}) / 3,
             other_matrix_ = torch::randn({8, 8}) / 3, row_bias_ = torch::randn({8});
  Norm norm_{4};
};

class RandomNetworks : public RewriteTest {
 protected:
  // Threads would only wait for one another: tensors are small here.
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { at::set_num_threads(threads_before_); }

  // As near to eager as docs/rewrites.md says, on inputs that nothing was recorded with; what is left in the
  // arguments too.
  static void expect_near(const Program& program, const RandomNetwork& network) {
    const Tensors given = RandomNetwork::inputs(), alike = {given[0].clone(), given[1].clone()};
    Tensors expected = network(given), results = run(program, alike);
    expected.push_back(given[1]);
    results.push_back(alike[1]);
    ASSERT_EQ(results.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(results[i].strides(), expected[i].strides());
      const double error = (results[i] - expected[i]).abs().max().item<double>();
      EXPECT_LE(error, 1e-4 * expected[i].abs().max().item<double>()) << "result " << i;
    }
  }

  void count(std::string_view rewrite, std::size_t sites) { fired_[std::string(rewrite)] += sites; }
  void expect_fired_often(const std::vector<std::string>& rewrites) {
    for (const std::string& rewrite : rewrites) EXPECT_GT(fired_[rewrite], 20u) << rewrite;
  }

  static constexpr std::uint64_t kNetworks = 100;

 private:
  std::map<std::string, std::size_t> fired_;
  const int threads_before_ = at::get_num_threads();
};

TEST_F(RandomNetworks, OnACpuGiveWhatEagerGives) {
  for (std::uint64_t seed = 0; seed < kNetworks; ++seed) {
    SCOPED_TRACE(seed);
    const RandomNetwork network(seed);
    const Tensors in = network.inputs();
    const AppliedRewrites applied = apply_rewrites(record(in, network), all_rewrites(), in, measured(1, 100));
    for (const RewriteReport& report : applied.reports) {
      EXPECT_EQ(report.dropped, "") << report.name;
      count(report.name, report.sites.size());
    }
    expect_near(applied.program, network);
  }
  expect_fired_often({"out_of_place", "common_subexpressions", "unread_work", "norm_through_cat",
                      "fold_batch_norm", "relu_through_cat", "mkldnn_convolution", "scale_batch_norm",
                      "merge_linears", "mkldnn_linear", "pointwise_blocks", "weights_once"});
}

// There our operators are made of ATen's.
TEST_F(RandomNetworks, RewrittenAsForAGpuGiveWhatEagerGives) {
  for (std::uint64_t seed = 0; seed < kNetworks; ++seed) {
    SCOPED_TRACE(seed);
    const RandomNetwork network(seed);
    const Tensors in = network.inputs();
    Program program = record(in, network);
    for (const Rewrite* rewrite : all_rewrites()) {
      if (!rewrite->on_cuda) continue;
      const Rewritten rewritten = rewrite->apply(program, {});
      if (rewritten.sites.empty()) continue;
      count(rewrite->name, rewritten.sites.size());
      check_program(rewritten.program, program, rewrite->name);
      Program recorded = record_anew(rewritten.program, in);
      check_program(recorded, program, rewrite->name);
      program = std::move(recorded);
    }
    expect_near(program, network);
  }
  expect_fired_often(
      {"channels_last", "fuse_convolution", "matrix_linear", "fuse_pointwise", "cat_by_address"});
}

}  // namespace
}  // namespace nimble
