#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <cstdint>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble::cuda {

// The CUDA generators that a program's random tasks draw from, each once.
std::vector<at::Generator> generators_of(const Program& program);

// Lets a graph draw what eager code would draw next, whatever order its tasks were issued in. A captured
// kernel reads seed and position from device memory; here that memory belongs to the graph alone, a position
// for each random task, so graphs that draw may run at the same time.
//
// PyTorch has one flag per generator that says "capturing"; it is up only while a random task is being
// captured. A draw by another thread in that moment throws PyTorch's own error.
class GraphGenerators {
 public:
  explicit GraphGenerators(const Program& program);

  // While it lives, what is issued on this thread is the random task `task` of the graph being captured.
  class Drawing {
   public:
    Drawing(GraphGenerators& generators, TaskId task);
    ~Drawing();
    Drawing(const Drawing&) = delete;
    Drawing& operator=(const Drawing&) = delete;

   private:
    GraphGenerators& generators_;
    std::size_t nth_;  // among the random tasks
  };

  // Once all tasks were captured: orders their draws as recorded.
  void finish();

  // Tells the graph, on the current stream, where in the sequence its next launch starts, and moves the
  // generators past what it will draw.
  void advance();

 private:
  struct Source {
    at::Generator generator;
    c10::intrusive_ptr<at::CUDAGeneratorState> state;
    at::Tensor seed, positions;                           // what the graph's kernels read
    at::TensorBase outer_seed = {}, outer_position = {};  // of PyTorch's own graphs, put aside while drawing
    at::Tensor starts;                 // by random task: what those recorded before it draw in one launch
    std::vector<std::int64_t> drawn;   // by random task
    std::uint64_t drawn_together = 0;  // by one launch
  };
  std::vector<std::size_t> nth_;  // by task
  std::vector<Source> sources_;
};

// The same for tasks that are launched one by one in another order than recorded. Not for use while other
// threads draw from the same generators.
class LaunchedDraws {
 public:
  explicit LaunchedDraws(const Program& program);

  // How much a random task draws: measured around it in a first run.
  void before_measured();
  void after_measured(TaskId task);

  // Around a replay, and before each of its random tasks.
  void begin();
  void before(TaskId task);
  void end();

 private:
  struct Source {
    at::Generator generator;
    std::vector<std::uint64_t> drawn;  // by task
    std::uint64_t position = 0;        // where the task being measured, or the replay, begins
  };
  std::vector<Source> sources_;
};

}  // namespace nimble::cuda
