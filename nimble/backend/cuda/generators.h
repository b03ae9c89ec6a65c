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

// Lets a graph draw what eager code would draw next. A captured kernel reads seed and offset from device
// memory; here that memory belongs to the graph alone, so graphs that draw may run at the same time.
//
// PyTorch has one flag per generator that says "capturing"; it is up only while a random task is being
// captured. A draw by another thread in that moment throws PyTorch's own error.
class GraphGenerators {
 public:
  explicit GraphGenerators(const Program& program);

  // While it lives, the tasks issued on this thread draw for the graph being captured.
  class Drawing {
   public:
    explicit Drawing(GraphGenerators& generators);
    ~Drawing();
    Drawing(const Drawing&) = delete;
    Drawing& operator=(const Drawing&) = delete;

   private:
    GraphGenerators& generators_;
  };

  // Tells the graph, on the current stream, where in the sequence its next launch starts, and moves the
  // generators past what it will draw.
  void advance();

 private:
  struct Source {
    at::Generator generator;
    c10::intrusive_ptr<at::CUDAGeneratorState> state;
    at::TensorBase seed, offset;  // what the graph's kernels read
    std::uint64_t drawn = 0;      // by one launch of the graph
  };
  std::vector<Source> sources_;
};

}  // namespace nimble::cuda
