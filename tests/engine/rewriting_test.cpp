#include "nimble/engine/rewriting.h"

#include <gtest/gtest.h>
#include "../torch/recorded.h"

namespace nimble {
namespace {

// A convolution in this type, and what is said of rewrites of it.
struct Made {
  Program program;
  Rewriting rewriting;
};
Made made(at::ScalarType type, std::vector<RewriteReport> reports) {
  const at::NoGradGuard no_grad;
  const at::Tensor weight = at::ones({4, 3, 3, 3}, type);
  Made made{.program = record({at::ones({1, 3, 5, 5}, type)},
                              [&](const Tensors& in) -> Tensors { return {at::conv2d(in[0], weight)}; }),
            .rewriting = {}};
  made.rewriting.reports = std::move(reports);
  return made;
}

bool could_be_more_precise(const Made& made) { return could_be_more_precise(made.rewriting, made.program); }

const RewriteReport kFused{.name = "fuse_convolution", .sites = {"convolution#0"}},
    kDropped{.name = "fuse_convolution", .sites = {"convolution#0"}, .dropped = "it was slower"},
    kOther{.name = "pooling", .sites = {"max_pool2d#1"}};

TEST(Rewriting, CouldBeMorePreciseWhereConvolutionsInSinglePrecisionWereFused) {
  EXPECT_TRUE(could_be_more_precise(made(at::kFloat, {kOther, kFused})));
  EXPECT_FALSE(could_be_more_precise(made(at::kBFloat16, {kFused})));
}

TEST(Rewriting, CouldBeMorePreciseWhereLinearLayersMayRoundToTF32) {
  struct Allow {
    bool before = at::globalContext().allowTF32CuBLAS();
    Allow() { at::globalContext().setAllowTF32CuBLAS(true); }
    ~Allow() { at::globalContext().setAllowTF32CuBLAS(before); }
  };
  const at::NoGradGuard no_grad;
  const at::Tensor weight = at::ones({4, 3});
  Made linear{.program = record({at::ones({2, 3})},
                                [&](const Tensors& in) -> Tensors { return {at::linear(in[0], weight)}; }),
              .rewriting = {}};
  linear.rewriting.reports = {{.name = "matrix_linear", .sites = {"mm#0"}}};
  EXPECT_FALSE(could_be_more_precise(linear));
  const Allow allow;
  EXPECT_TRUE(could_be_more_precise(linear));
}

TEST(Rewriting, CouldNotWhereTheyWereNot) {
  EXPECT_FALSE(could_be_more_precise(made(at::kFloat, {})));
  EXPECT_FALSE(could_be_more_precise(made(at::kFloat, {kOther})));
  EXPECT_FALSE(could_be_more_precise(made(at::kFloat, {kDropped})));
}

TEST(Rewriting, CouldNotWhereTheSettingsForbidTF32) {
  struct Disallow {
    bool before = at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
    Disallow() { at::globalContext().setAllowTF32CuDNN(false); }
    ~Disallow() { at::globalContext().setAllowTF32CuDNN(before); }
  };
  const Made fused = made(at::kFloat, {kFused});
  const Disallow disallow;
  EXPECT_FALSE(could_be_more_precise(fused));
}

TEST(Rewriting, AStepOfTrainingOnACpuStaysAsItWasRecorded) {
  const at::NoGradGuard no_grad;
  const Tensors inputs = {at::ones({2, 3})};
  const auto program = std::make_shared<const Program>(record(
      inputs, [](const Tensors& in) -> Tensors { return {in[0].cos().add_(in[0]).relu_() + (in[0] + 1)}; }));
  const CompileOptions options{.tune_seconds = 0, .rewrites = {"default"}};
  const Rewriting in_training = rewrite(program, inputs, options, /*trains=*/true, /*precise=*/false, {});
  EXPECT_EQ(in_training.program, program);
  EXPECT_TRUE(in_training.exact);
  EXPECT_TRUE(in_training.reports.empty());
  const Rewriting otherwise = rewrite(program, inputs, options, /*trains=*/false, /*precise=*/false, {});
  EXPECT_NE(otherwise.program, program);
}

// A program, and what rewrites made of it, with weights that were derived.
struct Both {
  std::shared_ptr<const Program> recorded, rewritten;
  Rewriting rewriting;
};
Both both() {
  const auto program = std::make_shared<const Program>(made(at::kFloat, {}).program);
  const auto rewritten = std::make_shared<const Program>(*program);
  return {program, rewritten,
          Rewriting{.program = rewritten,
                    .reports = {kFused, kOther},
                    .exact = false,
                    .weights = Versions(Tensors{at::ones({2})})}};
}

TEST(Rewriting, AProgramThatIsClearlySlowerIsDropped) {
  Both both = nimble::both();
  keep_the_faster(both.rewriting, both.recorded, {.recorded = 1.0, .rewritten = 1.1});
  EXPECT_EQ(both.rewriting.program, both.recorded);
  EXPECT_TRUE(both.rewriting.exact);
  EXPECT_FALSE(both.rewriting.weights);
  for (const RewriteReport& report : both.rewriting.reports) {
    EXPECT_EQ(report.dropped, "the program was slower with it");
  }
  EXPECT_EQ(both.rewriting.milliseconds_rewritten, 1.1);
}

TEST(Rewriting, OneThatIsFasterOrTakesAsLongIsKept) {
  for (const double milliseconds : {0.5, 1.0, 1.04}) {
    Both both = nimble::both();
    keep_the_faster(both.rewriting, both.recorded, {.recorded = 1.0, .rewritten = milliseconds});
    EXPECT_EQ(both.rewriting.program, both.rewritten);
    EXPECT_FALSE(both.rewriting.exact);
    EXPECT_TRUE(both.rewriting.weights);
    EXPECT_EQ(both.rewriting.reports[0].dropped, "");
  }
}

// Rewritings of a program that takes a millisecond, with and without another layout of its images.
Rewriting in_layout(double milliseconds, bool changed) {
  Both both = nimble::both();
  if (changed) both.rewriting.reports.push_back({.name = "channels_last", .sites = {"convolution#0"}});
  both.rewriting.milliseconds = 100;
  keep_the_faster(both.rewriting, both.recorded, {.recorded = 1.0, .rewritten = milliseconds});
  return both.rewriting;
}

TEST(Rewriting, TheRecordedLayoutIsTriedWhereAnotherBringsLittle) {
  EXPECT_FALSE(may_prefer_recorded_layout(in_layout(0.5, true)));
  EXPECT_TRUE(may_prefer_recorded_layout(in_layout(0.95, true)));
  EXPECT_TRUE(may_prefer_recorded_layout(in_layout(1.3, true)));
}

TEST(Rewriting, NotWhereImagesAreLaidOutAsBefore) {
  EXPECT_FALSE(may_prefer_recorded_layout(in_layout(1.3, false)));
  Rewriting failed = in_layout(0.95, true);
  failed.reports.back().dropped = "it could not be recorded";
  EXPECT_FALSE(may_prefer_recorded_layout(failed));
}

TEST(Rewriting, NotWhereNothingWasMeasured) {
  Rewriting unmeasured = nimble::both().rewriting;
  unmeasured.reports.push_back({.name = "channels_last", .sites = {"convolution#0"}});
  EXPECT_FALSE(may_prefer_recorded_layout(unmeasured));
}

TEST(Rewriting, TheFasterLayoutIsKept) {
  for (const double changed : {0.95, 1.3}) {
    Rewriting as_recorded = in_layout(0.8, false);
    const auto program = as_recorded.program;
    const Rewriting kept = faster_layout(in_layout(changed, true), std::move(as_recorded));
    EXPECT_EQ(kept.program, program);
    EXPECT_EQ(kept.milliseconds_rewritten, 0.8);
    EXPECT_EQ(kept.milliseconds, 200);
    ASSERT_EQ(kept.reports.size(), 3u);
    EXPECT_EQ(kept.reports[0].name, "channels_last");
    EXPECT_EQ(kept.reports[0].dropped, "the program was slower with it");
    EXPECT_EQ(kept.reports[1].dropped, "");
  }
}

TEST(Rewriting, WhichMayBeTheOther) {
  for (const double as_recorded : {0.97, 1.3}) {
    Rewriting changed = in_layout(0.95, true);
    const auto program = changed.program;
    const Rewriting kept = faster_layout(std::move(changed), in_layout(as_recorded, false));
    EXPECT_EQ(kept.program, program);
    EXPECT_EQ(kept.reports.back().name, "channels_last");
    EXPECT_EQ(kept.reports.back().dropped, "");
  }
  // Nothing else fired.
  EXPECT_EQ(faster_layout(in_layout(1.3, true), Rewriting{}).reports.back().name, "channels_last");
}

}  // namespace
}  // namespace nimble
