#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nimble/core/memory_plan.h"
#include "nimble/core/task_graph.h"
#include "tests/core/random_graphs.h"

// Task graphs with buffers in the shape of real programs, for tests and benchmarks.
namespace nimble::testing {

struct Workload {
  TaskGraph graph;
  std::vector<BufferSpec> buffers;
};

// Writes a program one operator at a time: each reads tensors and makes one, and may need scratch memory
// while it runs. An operator depends on those that made what it reads.
class WorkloadBuilder {
 public:
  struct Tensor {
    std::size_t buffer = 0;
  };

  Tensor op(const std::string& name, const std::vector<Tensor>& reads, std::uint64_t bytes,
            std::uint64_t scratch = 0) {
    const TaskId task = graph_.add_task(name + "." + std::to_string(tasks_));
    ++tasks_;
    for (Tensor read : reads) {
      std::vector<TaskId>& uses = buffers_[read.buffer].uses;
      if (uses.back() != task) {
        graph_.add_edge(uses.front(), task);
        uses.push_back(task);
      }
    }
    if (scratch > 0) add_buffer(scratch, task);
    return {add_buffer(bytes, task)};
  }

  std::size_t task_count() const { return tasks_; }
  TaskId producer(Tensor tensor) const { return buffers_[tensor.buffer].uses.front(); }
  void order(TaskId before, TaskId after) { graph_.add_edge(before, after); }

  Workload build() && { return {std::move(graph_).build(), std::move(buffers_)}; }

 private:
  std::size_t add_buffer(std::uint64_t bytes, TaskId task) {
    buffers_.push_back({"b" + std::to_string(buffers_.size()), bytes, 256, {task}});
    return buffers_.size() - 1;
  }

  TaskGraphBuilder graph_;
  std::vector<BufferSpec> buffers_;
  std::size_t tasks_ = 0;
};

// Inception: a stem, then blocks of four branches, of one to four convolutions each, that end in a
// concatenation.
inline Workload inception_like(std::size_t blocks) {
  WorkloadBuilder net;
  using Tensor = WorkloadBuilder::Tensor;
  std::uint64_t pixels = 35 * 35;
  const auto conv = [&](Tensor x, std::uint64_t channels) {
    const Tensor y = net.op("conv", {x}, pixels * channels * 4, pixels * channels);
    const Tensor z = net.op("batch_norm", {y}, pixels * channels * 4);
    return net.op("relu", {z}, pixels * channels * 4);
  };
  Tensor x = net.op("input", {}, 299 * 299 * 3 * 4);
  for (std::uint64_t channels : {32, 64, 192}) x = conv(x, channels);
  for (std::size_t block = 0; block < blocks; ++block) {
    if (block % 5 == 4) pixels = std::max<std::uint64_t>(64, pixels / 4);
    const std::uint64_t channels = 64 << std::min<std::size_t>(3, block / 5);
    const Tensor one = conv(x, channels);
    const Tensor two = conv(conv(x, channels * 3 / 4), channels);
    const Tensor three = conv(conv(conv(x, channels), channels * 3 / 2), channels * 3 / 2);
    const Tensor pool = conv(net.op("pool", {x}, pixels * channels * 16), channels / 2);
    x = net.op("cat", {one, two, three, pool}, pixels * channels * 4 * 4);
  }
  net.op("linear", {x}, 4000);
  return std::move(net).build();
}

// NASNet-A: each cell reads the two cells before it and adds up five pairs of separable convolutions and
// poolings.
inline Workload nasnet_like(std::size_t cells) {
  WorkloadBuilder net;
  using Tensor = WorkloadBuilder::Tensor;
  std::uint64_t bytes = 56 * 56 * 44 * 4;
  const auto separable = [&](Tensor x) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      x = net.op("relu", {x}, bytes);
      x = net.op("depthwise", {x}, bytes, bytes / 8);
      x = net.op("pointwise", {x}, bytes, bytes / 8);
      x = net.op("batch_norm", {x}, bytes);
    }
    return x;
  };
  const auto add = [&](Tensor a, Tensor b) { return net.op("add", {a, b}, bytes); };
  Tensor before = net.op("stem", {}, bytes), x = net.op("stem", {before}, bytes);
  for (std::size_t cell = 0; cell < cells; ++cell) {
    if (cell % 6 == 5) bytes = std::max<std::uint64_t>(4096, bytes / 2);
    const Tensor h = net.op("adjust", {x}, bytes), p = net.op("adjust", {before}, bytes);
    const Tensor a = add(separable(h), h);
    const Tensor b = add(separable(p), separable(h));
    const Tensor c = add(net.op("pool", {h}, bytes), p);
    const Tensor d = add(net.op("pool", {p}, bytes), net.op("pool", {p}, bytes));
    const Tensor e = add(separable(p), separable(p));
    before = std::exchange(x, net.op("cat", {p, a, b, c, d, e}, 6 * bytes));
  }
  net.op("linear", {x}, 4000);
  return std::move(net).build();
}

// A training step: `layers` residual layers forward, each keeping what its backward needs; then backward,
// where the gradient of the input and that of the weights part ways; then an update for each weight.
inline Workload training_like(std::size_t layers) {
  WorkloadBuilder net;
  using Tensor = WorkloadBuilder::Tensor;
  struct Layer {
    Tensor input, convolved, normed, output;
    std::uint64_t bytes, weight_bytes;
  };
  std::vector<Layer> forward;
  Tensor x = net.op("input", {}, 64 * 224 * 224 * 3);
  for (std::size_t l = 0; l < layers; ++l) {
    const std::uint64_t stage = std::min<std::size_t>(3, 4 * l / layers);
    const std::uint64_t bytes = (std::uint64_t{64} * 56 * 56 * 64 * 4 >> stage) + 4096 * (l % 7);
    const std::uint64_t weight_bytes = std::uint64_t{64 * 64 * 9 * 4} << 2 * stage;
    const Tensor convolved = net.op("conv", {x}, bytes, bytes / 4);
    const Tensor normed = net.op("batch_norm", {convolved}, bytes);
    const Tensor output = l % 2 == 1 ? net.op("add_relu", {normed, forward.back().input}, bytes)
                                     : net.op("relu", {normed}, bytes);
    forward.push_back({x, convolved, normed, output, bytes, weight_bytes});
    x = output;
  }
  Tensor gradient = net.op("loss", {x}, forward.empty() ? 4 : forward.back().bytes);
  std::vector<Tensor> weight_gradients;
  for (std::size_t l = layers; l-- > 0;) {
    const Layer& layer = forward[l];
    gradient = net.op("relu_backward", {gradient, layer.output}, layer.bytes);
    gradient = net.op("batch_norm_backward", {gradient, layer.convolved}, layer.bytes);
    weight_gradients.push_back(
        net.op("weight_gradient", {gradient, layer.input}, layer.weight_bytes, layer.bytes / 4));
    if (l > 0) gradient = net.op("input_gradient", {gradient}, forward[l - 1].bytes, layer.bytes / 8);
  }
  for (Tensor g : weight_gradients) net.op("update", {g}, 4);
  return std::move(net).build();
}

// Blocks of up to `width` parallel branches that fork from one task and join in another, until there are
// about `tasks` tasks (never fewer). As in recorded programs, many edges are implied by others: branches also
// read what is further back in the block, each other, and the results of earlier blocks.
inline Workload branchy(std::size_t tasks, std::size_t width, std::uint64_t seed = 1) {
  Random random(seed);
  WorkloadBuilder net;
  using Tensor = WorkloadBuilder::Tensor;
  const auto bytes = [&] {
    return std::uint64_t{512} * random.between(1, std::uint64_t{1} << random.between(0, 10));
  };
  std::vector<Tensor> joins = {net.op("input", {}, bytes())};
  while (net.task_count() < tasks) {
    const std::size_t branches =
        joins.size() == 1 ? width : random.between(std::max<std::size_t>(1, width / 2), width);
    const Tensor fork = net.op("fork", {joins.back()}, bytes());
    std::vector<Tensor> block, ends;
    for (std::size_t branch = 0; branch < branches; ++branch) {
      Tensor x = fork;
      for (std::uint64_t length = random.between(1, 8); length > 0; --length) {
        std::vector<Tensor> reads = {x};
        if (random.chance(0.3)) reads.push_back(fork);
        if (!block.empty() && random.chance(0.02))
          reads.push_back(block[random.between(0, block.size() - 1)]);
        if (random.chance(0.02))
          reads.push_back(
              joins[random.between(joins.size() - std::min<std::size_t>(joins.size(), 8), joins.size() - 1)]);
        x = net.op("op", reads, bytes(), random.chance(0.2) ? bytes() : 0);
        block.push_back(x);
      }
      ends.push_back(x);
    }
    joins.push_back(net.op("join", ends, bytes()));
  }
  return std::move(net).build();
}

// The width of the graphs that the planner is measured with: as branchy as big models are, and no more.
inline std::size_t typical_width(std::size_t tasks) {
  return std::min<std::size_t>(64, static_cast<std::size_t>(std::sqrt(static_cast<double>(tasks))));
}

}  // namespace nimble::testing
