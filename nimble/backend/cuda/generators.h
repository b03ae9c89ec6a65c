#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "nimble/torch/program.h"

namespace nimble::cuda {

// What the tasks of a program draw from one generator: how much each takes, and where each begins, counted
// from where the program begins. A task may begin where an earlier one did (checkpointing).
class DrawSequence {
 public:
  DrawSequence(const Program& program, const Draw& end);

  std::size_t size() const { return draws_.size(); }
  std::optional<std::size_t> number_of(TaskId task) const;  // which draw it is, if it is one
  void drew(std::size_t number, std::int64_t amount) { draws_[number].amount = amount; }

  std::vector<std::int64_t> starts() const;  // by draw
  std::int64_t end() const { return positions()[end_]; }
  // Some operators could draw and do not, as attention that drops nothing.
  bool is_empty() const;

 private:
  std::vector<std::int64_t> positions() const;

  struct OneDraw {
    TaskId task;
    std::size_t from;         // behind which draw it begins, 0 for the start of the program
    std::int64_t amount = 0;  // of the sequence
  };
  std::vector<OneDraw> draws_;
  std::size_t end_;
};

// Lets a graph draw what eager code would draw next, whatever order its tasks were issued in. A captured
// kernel reads seed and position from device memory; here that memory belongs to the graph alone, a position
// for each random task, so graphs that draw may run at the same time.
//
// PyTorch has one flag per generator that says "capturing"; it is up only while a random task is being
// captured. A draw by another thread in that moment throws PyTorch's own error.
class GraphGenerators {
  struct Source;

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
    Source* source_ = nullptr;
    std::size_t number_ = 0;
    at::TensorBase outer_seed_ = {}, outer_position_ = {};  // of PyTorch's own graphs, put aside meanwhile
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
    DrawSequence sequence;
    at::Tensor seed, positions;        // what the graph's kernels read
    at::Tensor starts = {};            // by draw
    std::uint64_t drawn_together = 0;  // by one launch
    bool is_drawn_from = true;         // else nobody reads seed and positions, and nothing moves
  };
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
    DrawSequence sequence;
    std::uint64_t position = 0;  // where the task being measured, or the replay, begins
    std::vector<std::int64_t> starts = {};
  };
  std::vector<Source> sources_;
};

}  // namespace nimble::cuda
