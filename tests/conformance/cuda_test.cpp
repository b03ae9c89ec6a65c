// What only a GPU can show: captures beside other threads, streams of the caller's, device memory, errors.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <thread>

#include "nimble/torch/outside_state.h"
#include "nimble/torch/record_error.h"
#include "tests/conformance/delay.h"
#include "tests/conformance/replayed.h"

namespace nimble::testing {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

const c10::Device kGpu(c10::kCUDA, 0);

std::int64_t allocated_bytes() {
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return caching::getDeviceStats(0).allocated_bytes[kAll].current;
}

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_available()) GTEST_SKIP() << "no CUDA device";
    make_kernels_deterministic();
    at::manual_seed(3);
  }
};

bool is_capturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(), &status);
  return status != cudaStreamCaptureStatusNone;
}

TEST_F(Cuda, TheArenaComesFromPyTorchAndGoesBack) {
  const Subject subject = branchy_convnet(kGpu);
  const auto program = record(subject, kGpu);
  const Tensors inputs = subject.fresh_inputs();
  prepare(program, 0)->replay(inputs);  // libraries keep some memory from their first use on
  const auto before = allocated_bytes();
  auto executable = prepare(program, 0);
  EXPECT_GE(allocated_bytes() - before, static_cast<std::int64_t>(executable->report().arena_bytes));
  executable->replay(inputs);
  executable.reset();
  EXPECT_EQ(allocated_bytes(), before);
}

TEST_F(Cuda, SnapshotsAndEmptyingTheCacheGoOnWorking) {
  const Subject subject = branchy_convnet(kGpu);
  const auto executable = prepare(record(subject, kGpu), 0);
  EXPECT_TRUE(replays_like_eager(subject, *executable));
  EXPECT_FALSE(caching::snapshot().segments.empty());
  caching::emptyCache();
  EXPECT_TRUE(replays_like_eager(subject, *executable));
}

TEST_F(Cuda, TwoHundredExecutablesGiveAllMemoryBack) {
  const Subject convnet = branchy_convnet(kGpu), chains = parallel_matmul_chains(kGpu);
  const auto program_a = record(convnet, kGpu), program_b = record(chains, kGpu);
  const auto free_bytes = [] {
    cudaDeviceSynchronize();
    caching::emptyCache();
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return free;
  };
  const auto make_and_drop = [&](int i) {
    const Subject& subject = i % 2 ? convnet : chains;
    prepare(i % 2 ? program_a : program_b, 1 + i % 5)->replay(subject.fresh_inputs());
  };
  for (int i = 0; i < 10; ++i) make_and_drop(i);
  const std::size_t before = free_bytes();
  const auto allocated_before = allocated_bytes();
  const auto workspaces_before = at::cuda::cublas_handle_stream_to_workspace().map.size();
  for (int i = 0; i < 200; ++i) make_and_drop(i);
  EXPECT_EQ(allocated_bytes(), allocated_before);
  EXPECT_EQ(at::cuda::cublas_handle_stream_to_workspace().map.size(), workspaces_before);
  constexpr std::size_t kDriversOwn =
      8 << 20;  // it keeps some memory for graphs and streams, but not for each of 200
  EXPECT_GE(free_bytes() + kDriversOwn, before);
}

TEST_F(Cuda, ReplaysAllocateNothingThatStays) {
  const Subject subject = training_step(kGpu);
  const auto executable = prepare(record(subject, kGpu), 0);
  const Tensors inputs = subject.fresh_inputs();
  executable->replay(inputs);
  const auto before = allocated_bytes();
  for (int i = 0; i < 1000; ++i) executable->replay(inputs);
  EXPECT_EQ(allocated_bytes(), before);
}

TEST_F(Cuda, ThreadsThatAllocateAllTheTimeAreNotDisturbed) {
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0, rounds = 0;
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      try {
        const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromPool());
        for (std::int64_t i = 1; !stop; ++i) {
          const at::Tensor x = at::full({8 + i % 5000}, static_cast<double>(t), at::TensorOptions(kGpu));
          const at::Tensor y = at::mm(x.unsqueeze(1).slice(0, 0, 8), x.unsqueeze(0).slice(1, 0, 8));
          if (y.sum().item<double>() != 64.0 * t * t) ++wrong;
          if (i % 50 == 0) caching::emptyCache();
          ++rounds;
        }
      } catch (const std::exception& error) {
        errors[t] = error.what();
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    for (const auto& make : {branchy_convnet, parallel_matmul_chains}) {
      const Subject subject = make(kGpu);
      EXPECT_TRUE(replays_like_eager(subject, *prepare(record(subject, kGpu), i % 2 ? 0 : 4)));
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(rounds, 0);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Long sums in few results: cuBLAS splits them, and adds the parts up in a workspace.
Subject long_products(c10::ScalarType dtype) {
  const auto options = at::TensorOptions(kGpu).dtype(dtype);
  return {[](const Tensors& inputs) -> Tensors {
            Tensors results;
            for (std::size_t i = 0; i < inputs.size(); i += 2)
              results.push_back(at::mm(inputs[i], inputs[i + 1]).relu());
            return results;
          },
          [options] {
            Tensors inputs;
            for (const std::int64_t rows : {8, 32, 96, 160}) {
              for (const std::int64_t inner : {1024, 8192, 20000}) {
                inputs.push_back(at::randn({rows, inner}, options));
                inputs.push_back(at::randn({inner, rows + 16}, options));
              }
            }
            return inputs;
          },
          {}};
}

// A workspace is as large as what the kernels write to, which is far less than cuBLAS is promised.
TEST_F(Cuda, MatrixProductsWriteNothingBehindTheirWorkspaces) {
  for (const auto dtype : {at::kFloat, at::kHalf}) {
    const Subject subject = long_products(dtype);
    const auto program = record(subject, kGpu);
    BindOptions options;
    options.example_inputs = subject.fresh_inputs();
    const auto executable = prepare(program, 0, options);
    EXPECT_LT(executable->report().workspace_bytes, at::cuda::getChosenWorkspaceSize()) << dtype;
    Tensors neighbours;  // whatever the allocator has left around it
    for (const std::int64_t bytes : {512, 64 << 10, 1 << 20, 4 << 20}) {
      for (int i = 0; i < 60; ++i)
        neighbours.push_back(at::full({bytes}, 7, at::TensorOptions(kGpu).dtype(at::kByte)));
    }
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(replays_like_eager(subject, *executable)) << dtype;
    for (const at::Tensor& neighbour : neighbours) EXPECT_TRUE(neighbour.eq(7).all().item<bool>());
  }
}

// Matrix products share no workspace: each executable has its own, whatever stream it is replayed on.
TEST_F(Cuda, ExecutablesReplayedAtOnceDoNotDisturbEachOther) {
  constexpr int kExecutables = 4, kReplays = 200;
  const Subject subject = parallel_matmul_chains(kGpu);
  const auto program = record(subject, kGpu);
  std::vector<std::unique_ptr<Executable>> executables;
  std::vector<Tensors> inputs, expected;
  for (int i = 0; i < kExecutables; ++i) {
    executables.push_back(prepare(program, i % 2 ? 0 : 2));
    inputs.push_back(subject.fresh_inputs());
    expected.push_back(subject.function(inputs.back()));
  }
  cudaDeviceSynchronize();
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kExecutables; ++i) {
    threads.emplace_back([&, i] {
      const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromPool());
      for (int replay = 0; replay < kReplays; ++replay) {
        if (!same_bits(executables[i]->replay(inputs[i])[0], expected[i][0])) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Cuda, OneExecutableMayBeReplayedOnAnyStream) {
  const Subject subject = branchy_convnet(kGpu);
  const auto executable = prepare(record(subject, kGpu), 0);
  std::vector<Tensors> inputs, results, expected;
  for (int i = 0; i < 20; ++i) {
    inputs.push_back(subject.fresh_inputs());
    expected.push_back(subject.function(inputs.back()));
  }
  cudaDeviceSynchronize();
  for (const Tensors& input : inputs) {
    const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromPool());
    delay_current_stream(100);
    results.push_back(executable->replay(input));
  }
  cudaDeviceSynchronize();
  for (std::size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(same_bits(results[i][0], expected[i][0])) << i;
}

// The driver may give a destroyed stream's handle to the next one, while the first one's work still runs.
TEST_F(Cuda, AStreamWithAnOldHandleIsAnotherStream) {
  const Subject subject = branchy_convnet(kGpu);
  const auto executable = prepare(record(subject, kGpu), 0);
  std::vector<Tensors> inputs, results, expected;
  for (int i = 0; i < 20; ++i) {
    inputs.push_back(subject.fresh_inputs());
    expected.push_back(subject.function(inputs.back()));
  }
  cudaDeviceSynchronize();
  for (const Tensors& input : inputs) {
    cudaStream_t raw = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking), cudaSuccess);
    {
      const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromExternal(raw, 0));
      delay_current_stream(100);
      results.push_back(executable->replay(input));
    }
    ASSERT_EQ(cudaStreamDestroy(raw), cudaSuccess);
  }
  cudaDeviceSynchronize();
  for (std::size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(same_bits(results[i][0], expected[i][0])) << i;
}

TEST_F(Cuda, RandomnessKeepsItsSequenceOnAnyStreamAndBesideEagerDraws) {
  const Subject subject = dropout_in_branches(kGpu);
  const auto executable = prepare(record(subject, kGpu), 0);
  const Tensors inputs = subject.fresh_inputs();
  const auto run = [&](const std::function<Tensors()>& call) {
    at::manual_seed(11);
    Tensors all;
    for (int i = 0; i < 10; ++i) {
      const Tensors results = call();
      all.insert(all.end(), results.begin(), results.end());
      all.push_back(at::randn({7}, at::TensorOptions(kGpu)));
    }
    cudaDeviceSynchronize();
    return all;
  };
  const Tensors eager = run([&] { return subject.function(inputs); });
  executable->replay(inputs);
  const Tensors replayed = run([&] {
    const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromPool());
    return executable->replay(inputs);
  });
  ASSERT_EQ(eager.size(), replayed.size());
  for (std::size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], replayed[i])) << i;
}

// Two graphs in flight at once, each slowed down: the second is told where it starts while the first still
// draws.
TEST_F(Cuda, RandomGraphsThatOverlapKeepTheSequence) {
  const Subject subject = dropout_in_branches(kGpu);
  const auto program = record(subject, kGpu);
  BindOptions slow;
  slow.before_task = [](TaskId) { delay_current_stream(50); };
  const auto first = prepare(program, 4, slow), second = prepare(program, 0, slow);
  const Tensors inputs = subject.fresh_inputs();
  first->replay(inputs);
  second->replay(inputs);
  std::vector<Tensors> expected, drawn;
  at::manual_seed(19);
  for (int i = 0; i < 10; ++i) expected.push_back(subject.function(inputs));
  cudaDeviceSynchronize();
  at::manual_seed(19);
  const auto one = c10::cuda::getStreamFromPool(), other = c10::cuda::getStreamFromPool();
  for (int i = 0; i < 10; ++i) {
    const c10::cuda::CUDAStreamGuard on_stream(i % 2 ? one : other);
    drawn.push_back((i % 2 ? first : second)->replay(inputs));
  }
  cudaDeviceSynchronize();
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    for (std::size_t j = 0; j < drawn[i].size(); ++j)
      EXPECT_TRUE(same_bits(expected[i][j], drawn[i][j])) << i;
  }
}

// What a first run before the capture leaves in an input must not be seen by the first replay.
TEST_F(Cuda, TheFirstReplaySeesItsOwnInputs) {
  const Subject subject{[](const Tensors& inputs) -> Tensors {
                          at::Tensor x = inputs[0];
                          return {x.add_(1).clone()};
                        },
                        [] { return Tensors{at::zeros({3}, at::TensorOptions(kGpu))}; },
                        {}};
  const auto program = record(subject, kGpu);
  for (const bool graph : {true, false}) {
    BindOptions options;
    options.graph = graph;
    const Tensors inputs = subject.fresh_inputs();
    EXPECT_EQ(prepare(program, 1, options)->replay(inputs)[0].sum().item<float>(), 3) << graph;
    EXPECT_EQ(inputs[0].sum().item<float>(), 3) << graph;
  }
}

TEST_F(Cuda, AFailedCaptureNamesTheOperatorAndTheNextOneWorks) {
  const Subject subject = dropout_in_branches(kGpu);
  const auto program = record(subject, kGpu);
  BindOptions options;
  options.before_task = [](TaskId task) {
    if (task == TaskId{3} && is_capturing()) cudaDeviceSynchronize();  // which a capture does not allow
  };
  const auto broken = prepare(program, 0, options);
  try {
    broken->replay(subject.fresh_inputs());
    FAIL() << "the capture should have failed";
  } catch (const RecordError& error) {
    const std::string& name = program->task(TaskId{3}).op.operator_name().name;
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_TRUE(at::randn({4}, at::TensorOptions(kGpu)).isfinite().all().item<bool>());
  EXPECT_TRUE(replays_like_eager(subject, *prepare(program, 0)));
}

TEST_F(Cuda, AnErrorOfATaskIsToldWithItsName) {
  const Subject subject = branchy_convnet(kGpu);
  const auto program = record(subject, kGpu);
  BindOptions options;
  options.before_task = [](TaskId task) {
    if (task == TaskId{5}) throw std::runtime_error("no luck");
  };
  const auto broken = prepare(program, 2, options);
  try {
    broken->replay(subject.fresh_inputs());
    FAIL() << "the error should have come through";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(task_name(*program, TaskId{5})), std::string::npos) << text;
    EXPECT_NE(text.find("no luck"), std::string::npos) << text;
  }
  EXPECT_TRUE(replays_like_eager(subject, *prepare(program, 2)));
}

TEST_F(Cuda, WithExampleInputsTheCaptureHappensWhenBound) {
  const Subject subject = updates_of_outside_tensors(kGpu);
  const auto program = record(subject, kGpu);
  int issued = 0;
  BindOptions options;
  options.example_inputs = subject.fresh_inputs();
  options.before_task = [&](TaskId) { ++issued; };
  const Tensors before = copies(subject.outside);
  const auto executable = prepare(program, 0, options);
  EXPECT_EQ(issued, 2 * static_cast<int>(program->tasks.size()));  // once to warm up, once to capture
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(same_bits(before[i], subject.outside[i])) << i;
  EXPECT_TRUE(replays_like_eager(subject, *executable));
  EXPECT_EQ(issued, 2 * static_cast<int>(program->tasks.size()));
}

TEST_F(Cuda, AnotherScheduleOfTheSameProgramIsNotWarmedUpAgain) {
  const Subject subject = updates_of_outside_tensors(kGpu);
  const auto program = record(subject, kGpu);
  int issued = 0;
  BindOptions options;
  options.example_inputs = subject.fresh_inputs();
  const auto first = prepare(program, 1, options);
  options.same_program = first.get();
  options.before_task = [&](TaskId) { ++issued; };
  const auto second = prepare(program, 0, options);
  EXPECT_EQ(issued, static_cast<int>(program->tasks.size()));  // captured, and nothing else
  EXPECT_TRUE(replays_like_eager(subject, *second));
}

TEST_F(Cuda, RefusesToBeCapturedAgain) {
  const Subject subject = branchy_convnet(kGpu);
  const auto executable = prepare(record(subject, kGpu), 2);
  const Tensors inputs = subject.fresh_inputs();
  executable->replay(inputs);
  {
    const auto stream = c10::cuda::getStreamFromPool();
    const c10::cuda::CUDAStreamGuard on_stream(stream);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_THROW(executable->replay(inputs), Error);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);  // the other capture is not harmed
    cudaGraphDestroy(graph);
  }
  EXPECT_TRUE(replays_like_eager(subject, *executable));
}

TEST_F(Cuda, HostInputsMayBePinnedOrNot) {
  auto scale = at::randn({3}, at::TensorOptions(kGpu));
  for (const bool pinned : {true, false}) {
    const Subject subject{
        [=](const Tensors& inputs) -> Tensors {
          return {inputs[0].to(kGpu, /*non_blocking=*/true) * scale, inputs[0].to(kGpu, at::kHalf)};
        },
        [=]() -> Tensors {
          at::Tensor x = at::randn({4, 3});
          return {pinned ? x.pin_memory() : x};
        },
        {}};
    EXPECT_TRUE(replays_like_eager(subject, *prepare(record(subject, kGpu), 0), 10))
        << (pinned ? "pinned" : "pageable");
  }
}

TEST_F(Cuda, NumbersInHostTensorsAreFollowed) {
  auto factor = at::scalar_tensor(2.0, at::kDouble);
  const Subject subject{[=](const Tensors& inputs) -> Tensors { return {inputs[0] * factor + inputs[1]}; },
                        []() -> Tensors {
                          return {at::randn({5}, at::TensorOptions(kGpu)), at::randn({})};
                        },
                        {}};
  const auto executable = prepare(record(subject, kGpu), 0);
  for (const double value : {2.0, 2.0, 3.0, -1.0}) {
    factor.fill_(value);
    EXPECT_TRUE(replays_like_eager(subject, *executable)) << value;
  }
}

TEST_F(Cuda, RefusesWhatItCannotReplayByName) {
  const auto refusal_of = [](const std::function<Tensors(const Tensors&)>& function) -> std::string {
    const Subject subject{function, [] { return Tensors{at::randn({4}, at::TensorOptions(kGpu))}; }, {}};
    try {
      record(subject, kGpu);
    } catch (const RecordError& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  const at::Tensor host = at::randn({4});
  EXPECT_NE(refusal_of([](const Tensors& in) -> Tensors { return {in[0].cpu()}; }).find("aten::_to_copy"),
            std::string::npos);
  EXPECT_NE(refusal_of([=](const Tensors& in) -> Tensors {
              return {in[0] + host.to(kGpu)};
            }).find("aten::_to_copy"),
            std::string::npos);
  EXPECT_NE(refusal_of([=](const Tensors& in) -> Tensors {
              return {in[0] * 2, host * 2};
            }).find("aten::mul"),
            std::string::npos);
}

TEST(CudaBackend, SaysWhyThereIsNone) {
  if (cuda_available()) GTEST_SKIP() << "there is a CUDA device";
  try {
    cuda_backend();
    FAIL() << "there is no device to give";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[nimble::compile]"), std::string::npos);
  }
}

}  // namespace
}  // namespace nimble::testing
