// Compiling for a GPU needs none.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <thread>

#include "nimble/core/error.h"
#include "nimble/core/files.h"
#include "nimble/kernels/batch_norm_source.h"
#include "nimble/kernels/calls_as_steps.h"
#include "nimble/kernels/cuda/dependent_launch.h"
#include "nimble/kernels/cuda/kernel_compiler.h"
#include "nimble/kernels/cuda/launch.h"
#include "nimble/kernels/cuda/nvrtc.h"
#include "nimble/kernels/depthwise_source.h"
#include "nimble/kernels/foreach_source.h"
#include "nimble/kernels/matrix_source.h"
#include "nimble/kernels/pointwise_source.h"
#include "nimble/kernels/pooling_source.h"
#include "nimble/kernels/row_source.h"
#include "tests/core/temporary_folder.h"

namespace nimble::kernels {
namespace {

using testing::TemporaryFolder;

const std::string kElfMagic =
    "\x7f"
    "ELF";

KernelSource trivial(int number) {
  return {"extern \"C\" __global__ void nimble_kernel(int* x) { *x = " + std::to_string(number) + "; }\n", 1,
          1, false};
}

KernelSource depthwise(at::ScalarType type, at::MemoryFormat format, std::int64_t candidate) {
  const at::Tensor x = at::empty({1, 32, 14, 14}, at::dtype(type).memory_format(format));
  return depthwise_source({.x = ImageLayout(x),
                           .y = ImageLayout(x),
                           .window = Window({5}, {1}, {2}, {1}),
                           .weight_channel = 1,
                           .weight_row = 5 * 32,
                           .weight_column = 32,
                           .weight_first = 0,
                           .dtype = type,
                           .has_bias = true,
                           .before = "relu",
                           .after = "hardswish",
                           .candidate = candidate});
}

KernelSource pooling(Pooling::Kind kind, at::ScalarType type, std::int64_t out,
                     const char* after = "gelu_tanh") {
  const auto options = at::dtype(type).memory_format(at::MemoryFormat::ChannelsLast);
  const at::Tensor x = at::empty({1, 32, 14, 14}, options), y = at::empty({1, 32, out, out}, options);
  return pooling_source({.kind = kind,
                         .x = ImageLayout(x),
                         .y = ImageLayout(y),
                         .window = Window({2}, {2}, {0}, {1}),
                         .dtype = type,
                         .after = after});
}

KernelSource pointwise(at::ScalarType type) {
  const Expression expression = parse_expression(
      "%0 = add.Tensor(x0, x1, 0.5); %1 = silu(%0); %2 = gt.Scalar(%1, 0.25); %3 = where.self(%2, %1, x0); "
      "%4 = maximum(%3, x1); %5 = pow.Tensor_Scalar(%4, 2.5); %6 = clamp(%5, -inf, 3); return %6, %2");
  const at::Tensor x = at::empty({1 << 17}, type);
  const auto steps = evaluate_steps(expression, {x.to(at::kMeta), x.to(at::kMeta)});
  return pointwise_source(expression, {x, x}, steps, {at::empty_like(x), at::empty_like(x, at::kBool)});
}

KernelSource ways_back_and_losses(at::ScalarType type) {
  const Expression expression = parse_expression(
      "%0 = silu_backward(x0, x1); %1 = gelu_backward(%0, x1, 'none'); %2 = gelu_backward(%1, x1, 'tanh'); "
      "%3 = hardsigmoid_backward(%2, x1); %4 = hardswish_backward(%3, x1); "
      "%5 = leaky_relu_backward(%4, x1, 0.1, false); %6 = smooth_l1_loss(%5, x1, 0, 0.5); "
      "%7 = huber_loss(%6, x0, 0, 0.5); %8 = sgn(%7); %9 = log1p(%7); return %5, %8, %9");
  const at::Tensor x = at::empty({1 << 17}, type);
  const auto steps = evaluate_steps(expression, {x.to(at::kMeta), x.to(at::kMeta)});
  return pointwise_source(expression, {x, x}, steps, {x, at::empty_like(x), at::empty_like(x)});
}

KernelSource foreach_kernel(at::ScalarType type) {
  const Expression expression = parse_expression(
      "%0 = _foreach_lerp.Scalar(x0, x2, 0.1); %1 = _foreach_addcmul.Scalar(x1, x2, x2, 0.001); "
      "%2 = _foreach_sqrt(%1); %3 = _foreach_div.List(%2, x3); %4 = _foreach_maximum.List(%3, x0); "
      "%5 = _foreach_addcdiv.Scalar(x1, %0, %4, -0.01); return %0, %5, %2");
  const std::vector<ListForm> forms = {{type}, {type}, {type}, {at::kFloat, true}, {type}};
  return foreach_source(expression, forms, 2);
}

KernelSource rows(at::ScalarType type, std::int64_t columns, const std::string& call) {
  const Expression expression =
      parse_expression("%0 = add.Tensor(x0, x1, 1); %1 = " + call + "; %2 = silu(%1); return %0, %2");
  const auto meta = at::device(at::kMeta).dtype(type);
  const at::Tensor x = at::empty({1000, columns}, meta), mask = at::empty({columns}, meta);
  return row_source(expression, {x, mask}, evaluate_steps(expression, {x, mask}), {x, x});
}

// All of them, then rows that are made with their numbers, and of those one number for everything.
KernelSource row_reductions(at::ScalarType type, std::int64_t columns) {
  const Expression expression = parse_expression(
      "%0 = sum.dim_IntList(x0, [1], true, none); %1 = mean.dim(x0, [1], true, none); %2 = amax(x0, [1], "
      "true); "
      "%3 = amin(x0, [1], true); %4 = linalg_vector_norm(x0, 2, [1], true, none); "
      "%5 = linalg_vector_norm(x0, 1, [1], true, none); %6 = linalg_vector_norm(x0, inf, [1], true, none); "
      "%7 = mul.Tensor(%0, %1); %8 = sub.Tensor(%2, %3, 1); %9 = addcmul(%7, %8, %4, 1); "
      "%10 = addcdiv(%9, %5, %6, 1); %11 = mse_loss(x0, %10, 0); %12 = mean.dim(%11, [1], false, none); "
      "%13 = mul.Tensor(x0, %10); return %12, %13, %2");
  const at::Tensor x = at::empty({1000, columns}, at::device(at::kMeta).dtype(type));
  const auto steps = evaluate_steps(expression, {x});
  return row_source(expression, {x}, steps, {steps[12], steps[13], steps[2]});
}

// A norm with the numbers that its way back needs.
KernelSource norm_in_training(at::ScalarType type, std::int64_t columns) {
  const std::string shape = "[" + std::to_string(columns) + "]";
  const auto call = parse_expression("%0 = native_layer_norm(x0, " + shape + ", x1, x1, 1e-05); return %0");
  auto norm = norm_with_numbers(call.steps[0], type);
  Expression expression{2, std::move(norm->steps), {}};
  const auto meta = at::device(at::kMeta).dtype(type);
  const std::vector<at::Tensor> inputs = {at::empty({1000, columns}, meta), at::empty({columns}, meta)};
  const auto steps = evaluate_steps(expression, inputs);
  std::vector<at::Tensor> results;
  for (const std::size_t result : norm->results) {
    expression.results.push_back(step(result));
    results.push_back(steps[result]);
  }
  return row_source(expression, inputs, steps, results);
}

MatrixConvolution product(at::ScalarType type, bool has_filters) {
  const at::Tensor x =
      at::empty({1, 44, 14, 14}, at::dtype(type).memory_format(at::MemoryFormat::ChannelsLast));
  const auto size = has_filters ? 5 : 1;
  return {.x = ImageLayout(x),
          .channels = 88,
          .out_height = 14,
          .out_width = 14,
          .weight_row = 44,
          .y_step = 88,
          .residual_step = 88,
          .dtype = type,
          .after = "relu",
          .has_filters = has_filters,
          .window = Window({size}, {1}, {size / 2}, {1}),
          .before = "relu",
          .between = "relu6",
          .weight_first = 0,
          .y_first = 0,
          .bias_first = 0,
          .residual_first = 0,
          .filters_first = 0,
          .filter_bias_first = 0};
}

KernelSource matrix(at::ScalarType type, bool has_filters) {
  return matrix_source(product(type, has_filters), 0);
}

KernelSource matrix_group(at::ScalarType type) {
  MatrixConvolution wide = product(type, false);
  wide.residual_first = wide.filters_first = wide.filter_bias_first = std::nullopt;
  MatrixConvolution narrow = wide;
  narrow.channels = narrow.y_step = narrow.residual_step = 16;
  return matrix_group_source(std::vector{wide, narrow, wide}, 0);
}

// Forward and back, in one pass and in two.
std::vector<KernelSource> batch_norms(at::ScalarType type) {
  std::vector<KernelSource> all;
  for (const std::int64_t side : {7, 112}) {
    const auto norm =
        *BatchNorm::of(at::empty({32, 64, side, side}, at::dtype(type).device(at::kMeta)), {}, "relu");
    std::ranges::copy(batch_norm_sources(norm, 0.1, 1e-5, /*tracks=*/true, /*adds=*/true),
                      std::back_inserter(all));
    std::ranges::copy(batch_norm_backward_sources(norm), std::back_inserter(all));
  }
  return all;
}

std::vector<KernelSource> every_kind(at::ScalarType type) {
  std::vector<KernelSource> all = batch_norms(type);
  all.insert(all.end(), {depthwise(type, at::MemoryFormat::ChannelsLast, 0),
                         depthwise(type, at::MemoryFormat::ChannelsLast, 1),
                         depthwise(type, at::MemoryFormat::Contiguous, 0),
                         pooling(Pooling::Kind::kMaximum, type, 7),
                         pooling(Pooling::Kind::kAverage, type, 7),
                         pooling(Pooling::Kind::kAdaptiveAverage, type, 3),
                         pooling(Pooling::Kind::kAdaptiveAverage, type, 1),
                         pointwise(type),
                         ways_back_and_losses(type),
                         foreach_kernel(type),
                         norm_in_training(type, 768),
                         rows(type, 64, "_softmax(%0, -1, false)"),
                         rows(type, 1000, "_safe_softmax(%0, -1, none)"),
                         rows(type, 8192, "native_layer_norm(%0, [8192], x1, x1, 1e-05)"),
                         rows(type, 1000, "_fused_rms_norm(%0, [1000], x1, none)"),
                         rows(type, 4096, "_log_softmax(%0, 1, false)"),
                         row_reductions(type, 33),
                         row_reductions(type, 8192),
                         matrix(type, false),
                         matrix(type, true),
                         matrix_group(type)});
  return all;
}

TEST(CompilerTest, EveryKindOfKernelCompiles) {
  for (const int arch : {80, 90}) {
    for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const KernelSource& kernel : every_kind(type)) {
        EXPECT_TRUE(compile_to_cubin(kernel.text, arch, kernel.contract).starts_with(kElfMagic));
      }
    }
  }
}

// It may be launched before the kernels that it depends on have ended, and must not end before they do.
TEST(CompilerTest, TheFirstThingThatEveryKernelDoesIsToWait) {
  for (const KernelSource& kernel : every_kind(at::kFloat)) {
    const auto head = kernel.text.find(std::string(KernelSource::kName) + "(");
    std::istringstream body(kernel.text.substr(kernel.text.find("{\n", head) + 2));
    std::string line;
    do {
      std::getline(body, line);
    } while (line.find("table") != line.npos);  // an argument itself: it was there before the kernel
    EXPECT_TRUE(line.starts_with("  after_earlier_kernels(")) << kernel.text.substr(head, 600);
  }
}

TEST(CompilerTest, LaunchingAheadIsForGPUsThatCanAndCanBeTurnedOff) {
  EXPECT_FALSE(launches_dependently(80));
  EXPECT_TRUE(launches_dependently(90));
  {
    const WithoutDependentLaunches without;
    EXPECT_FALSE(launches_dependently(90));
    std::jthread([] { EXPECT_TRUE(launches_dependently(90)) << "another thread is not concerned"; });
  }
  EXPECT_TRUE(launches_dependently(90));
}

TEST(CompilerTest, AMistakeIsShownWithTheCompilersWords) {
  try {
    compile_to_cubin("extern \"C\" __global__ void nimble_kernel() { oops }", 90, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("oops"), std::string::npos) << error.what();
  }
}

TEST(CompilerTest, TheCacheIsFilledAndUsed) {
  const TemporaryFolder folder;
  const DiskCache cache(folder.path() / "cache");
  const std::string first = cubin_of(trivial(1), 90, cache);
  const auto names = [&] {
    return std::distance(std::filesystem::directory_iterator(folder.path() / "cache"), {});
  };
  EXPECT_EQ(names(), 1);
  EXPECT_EQ(cubin_of(trivial(1), 90, cache), first);
  EXPECT_EQ(names(), 1);
}

TEST(CompilerTest, SourceArchitectureAndOptionsAreAllPartOfTheKey) {
  const TemporaryFolder folder;
  const DiskCache cache(folder.path() / "cache");
  KernelSource contracted = trivial(1);
  contracted.contract = true;
  cubin_of(trivial(1), 90, cache);
  cubin_of(trivial(2), 90, cache);
  cubin_of(trivial(1), 80, cache);
  cubin_of(contracted, 90, cache);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path() / "cache"), {}), 4);
}

TEST(CompilerTest, ADamagedFileIsMadeAnew) {
  const TemporaryFolder folder;
  const DiskCache cache(folder.path() / "cache");
  const std::string cubin = cubin_of(trivial(1), 90, cache);
  const auto file = std::filesystem::directory_iterator(folder.path() / "cache")->path();
  const std::string whole = read_file(file);
  write_file(file, whole.substr(0, whole.size() / 2));
  EXPECT_EQ(cubin_of(trivial(1), 90, cache), cubin);
  EXPECT_EQ(read_file(file), whole);
}

void handler_of_the_program(int) {}

// Whether somebody else handles one of the signals that end a program, or it is ignored.
bool is_handled_by_another() {
  for (const int number : {SIGINT, SIGTERM, SIGXFSZ}) {
    struct sigaction found = {};
    sigaction(number, nullptr, &found);
    if (found.sa_handler != handler_of_the_program) return true;
  }
  return false;
}

[[noreturn]] void compile_on_many_threads() {
  for (const int number : {SIGINT, SIGTERM, SIGXFSZ}) std::signal(number, handler_of_the_program);
  {
    std::vector<std::jthread> threads;
    for (int n = 0; n < 8; ++n) {
      threads.emplace_back([n] { compile_to_cubin(trivial(n).text, 90, false); });
    }
  }
  std::_Exit(is_handled_by_another() ? 1 : 0);
}

// The compiler takes them for itself the first time it is used, which is why this happens in new processes.
// One is not enough: it depends on who is first.
TEST(CompilerDeathTest, SignalsGoWhereTheyWentBeforeKernelsWereCompiled) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EXIT(compile_on_many_threads(), ::testing::ExitedWithCode(0), "");
  }
}

TEST(CompilerTest, OperatorsWithoutMemoryTellWhichKernelsTheyNeed) {
  const auto meta = at::device(at::kMeta).dtype(at::kFloat).memory_format(at::MemoryFormat::ChannelsLast);
  const at::Tensor x = at::empty({1, 32, 14, 14}, meta);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("nimble::adaptive_avg_pool2d", "");
  torch::jit::Stack stack = {x, std::vector<std::int64_t>{1, 1}, "none"};
  KernelCollector collector;
  op.callBoxed(&stack);
  ASSERT_EQ(collector.kernels.size(), 1u);
  EXPECT_EQ(collector.kernels[0].text, pooling(Pooling::Kind::kAdaptiveAverage, at::kFloat, 1, "none").text);
  EXPECT_EQ(stack[0].toTensor().sizes(), (std::vector<std::int64_t>{1, 32, 1, 1}));
}

TEST(CompilerTest, ListsWithoutMemoryTellTheirShapesAndTheirKernel) {
  const at::Tensor x = at::empty({5, 7}, at::device(at::kMeta)), y = at::empty({3}, at::device(at::kMeta));
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("nimble::foreach_pointwise", "");
  const c10::List<at::Tensor> list({x, y});
  torch::jit::Stack stack = {list, list,
                             "%0 = _foreach_sqrt(x1); %1 = _foreach_mul.List(x0, %0); return %1, %0", 2};
  KernelCollector collector;
  op.callBoxed(&stack);
  EXPECT_EQ(collector.kernels.size(), 1u);
  const auto made = stack[0].toTensorVector();
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].sizes(), x.sizes());
  EXPECT_EQ(made[1].sizes(), y.sizes());
}

TEST(CompilerTest, RowsWithoutMemoryTellTheirShapesAndTheirKernel) {
  const std::string call = "native_layer_norm(%0, [768], x1, x1, 1e-05)";
  const auto meta = at::device(at::kMeta).dtype(at::kHalf);
  const c10::List<at::Tensor> inputs({at::empty({1000, 768}, meta), at::empty({768}, meta)});
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("nimble::rows", "");
  torch::jit::Stack stack = {
      inputs, "%0 = add.Tensor(x0, x1, 1); %1 = " + call + "; %2 = silu(%1); return %0, %2", 0};
  KernelCollector collector;
  op.callBoxed(&stack);
  ASSERT_EQ(collector.kernels.size(), 1u);
  EXPECT_EQ(collector.kernels[0].text, rows(at::kHalf, 768, call).text);
  EXPECT_EQ(stack[0].toTensorVector().size(), 2u);
}

TEST(CompilerTest, AProductWithoutMemoryTellsItsShapeAndItsKernel) {
  const auto meta = at::device(at::kMeta).dtype(at::kHalf).memory_format(at::MemoryFormat::ChannelsLast);
  const at::Tensor x = at::empty({1, 32, 14, 14}, meta), weight = at::empty({24, 32, 1, 1}, meta),
                   filters = at::empty({3, 3, 1, 32}, meta.memory_format(std::nullopt)).permute({3, 2, 0, 1});
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("nimble::matrix_convolution", "");
  const std::vector<std::int64_t> two = {2, 2}, one = {1, 1};
  torch::jit::Stack stack = {x,   weight, c10::IValue(), c10::IValue(), "none", 0,    filters, c10::IValue(),
                             two, one,    one,           "relu",        "none", false};
  KernelCollector collector;
  op.callBoxed(&stack);
  EXPECT_EQ(collector.kernels.size(), 1u);
  EXPECT_EQ(stack[0].toTensor().sizes(), (std::vector<std::int64_t>{1, 24, 7, 7}));
  EXPECT_TRUE(stack[0].toTensor().is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(CompilerTest, AGroupOfProductsWithoutMemoryTellsItsShapesAndItsKernelWhereverTheyGo) {
  const auto meta = at::device(at::kMeta).dtype(at::kHalf).memory_format(at::MemoryFormat::ChannelsLast);
  const at::Tensor x = at::empty({2, 32, 7, 7}, meta), whole = at::empty({2, 64, 7, 7}, meta);
  const c10::List<at::Tensor> weights({at::empty({24, 32, 1, 1}, meta), at::empty({16, 32, 1, 1}, meta)}),
      places({whole.slice(1, 8, 32), whole.slice(1, 40, 56)});
  const auto find = [](const char* overload) {
    return c10::Dispatcher::singleton().findSchemaOrThrow("nimble::matrix_convolutions", overload);
  };
  torch::jit::Stack stack = {x, weights, c10::List<at::Tensor>(), "relu", 0, false};
  torch::jit::Stack into = stack;
  into.emplace_back(places);
  KernelCollector collector;
  find("").callBoxed(&stack);
  find("out").callBoxed(&into);
  ASSERT_EQ(collector.kernels.size(), 2u);
  EXPECT_EQ(collector.kernels[0].text, collector.kernels[1].text);
  const auto results = stack[0].toTensorVector();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].sizes(), (std::vector<std::int64_t>{2, 24, 7, 7}));
  EXPECT_EQ(results[1].sizes(), (std::vector<std::int64_t>{2, 16, 7, 7}));
  EXPECT_TRUE(results[1].is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(CompilerTest, PointwiseWorkWithoutMemoryTellsItsKernelWhereverItsResultsGo) {
  const auto meta = at::device(at::kMeta).dtype(at::kHalf).memory_format(at::MemoryFormat::ChannelsLast);
  const at::Tensor x = at::empty({2, 32, 7, 7}, meta), whole = at::empty({2, 64, 7, 7}, meta);
  const std::string text = "%0 = add.Tensor(x0, x0, 1); %1 = relu(%0); return %0, %1";
  const auto run = [&](const char* overload, const std::vector<at::Tensor>& places) {
    torch::jit::Stack stack = {c10::List<at::Tensor>({x}), text};
    if (!places.empty()) stack.emplace_back(c10::List<at::Tensor>(places));
    c10::Dispatcher::singleton().findSchemaOrThrow("nimble::pointwise", overload).callBoxed(&stack);
    return stack;
  };
  KernelCollector collector;
  EXPECT_EQ(run("", {})[0].toTensorVector().size(), 2u);
  EXPECT_TRUE(run("out", {at::empty_like(x), whole.slice(1, 8, 40)}).empty());
  EXPECT_EQ(collector.kernels.size(), 2u);
  EXPECT_THROW(run("out", {at::empty_like(x)}), InvalidInput) << "one place for two results";
  EXPECT_THROW(run("out", {at::empty_like(x), whole}), InvalidInput) << "a place of another shape";
}

// Compilations take turns between two copies of the compiler.
TEST(CompilerTest, TheSameKernelIsTheSameEachTimeItIsCompiled) {
  for (const KernelSource& kernel : {trivial(1), pointwise(at::kHalf), matrix(at::kFloat, true)}) {
    const auto compile = [&] { return compile_to_cubin(kernel.text, 90, kernel.contract); };
    const std::string first = compile();
    EXPECT_EQ(first, compile());
    EXPECT_EQ(first, compile());
  }
}

TEST(CompilerTest, ManyAreCompiledAtOnceAndEachCanBeWaitedFor) {
  const TemporaryFolder folder;
  const DiskCache cache(folder.path() / "cache");
  std::vector<KernelSource> kernels;
  for (int i = 0; i < 12; ++i) kernels.push_back(trivial(i));
  kernels.push_back({"oops", 1, 1, false});
  {
    const KernelsOnTheWay coming(kernels, 90, cache);
    EXPECT_THROW(coming.cubin(12).get(), Error);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(coming.cubin(i).get(), cubin_of(trivial(i), 90, cache));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path() / "cache"), {}), 12);
}

TEST(CompilerTest, WhoeverLetsGoOfKernelsOnTheirWayWaitsForAllOfThem) {
  const TemporaryFolder folder;
  const DiskCache cache(folder.path() / "cache");
  { const KernelsOnTheWay coming({trivial(1), trivial(2), trivial(3)}, 90, cache); }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path() / "cache"), {}), 3);
}

}  // namespace
}  // namespace nimble::kernels
