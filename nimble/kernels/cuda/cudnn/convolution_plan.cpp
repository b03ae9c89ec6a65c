#include "nimble/kernels/cuda/cudnn/convolution_plan.h"

#include <ATen/ATen.h>
#include <ATen/cudnn/Handle.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "nimble/core/error.h"
#include "nimble/kernels/cuda/cudnn/descriptor.h"

namespace nimble::kernels::cudnn {
namespace {

constexpr std::int64_t kMostWorkspace = std::int64_t{64} << 20;

// How tensors are called in a graph and when it runs.
enum Id : std::int64_t { kX = 1, kWeight, kResidual, kBias, kY, kFirstBetween };

const std::map<std::string_view, cudnnPointwiseMode_t>& activations() {
  static const std::map<std::string_view, cudnnPointwiseMode_t> table = {
      {"relu", CUDNN_POINTWISE_RELU_FWD},  {"relu6", CUDNN_POINTWISE_RELU_FWD},
      {"silu", CUDNN_POINTWISE_SWISH_FWD}, {"sigmoid", CUDNN_POINTWISE_SIGMOID_FWD},
      {"gelu", CUDNN_POINTWISE_GELU_FWD},  {"gelu_tanh", CUDNN_POINTWISE_GELU_APPROX_TANH_FWD},
  };
  return table;
}

Descriptor tensor(const Layout& layout, std::int64_t id, cudnnDataType_t type, bool in_memory = true) {
  Descriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, layout.sizes)
      .set(CUDNN_ATTR_TENSOR_STRIDES, layout.strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, layout.alignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, !in_memory);
  return std::move(made.finish());
}

Descriptor pointwise(cudnnPointwiseMode_t mode, std::string_view activation = {}) {
  Descriptor made(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  made.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  if (activation == "relu6") {
    made.set(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0.0).set(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, 6.0);
  }
  if (activation == "silu") made.set(CUDNN_ATTR_POINTWISE_SWISH_BETA, 1.0);
  return std::move(made.finish());
}

// The convolution as a graph of operations, each of which reads what the one before it made.
class Graph {
 public:
  Graph(cudnnHandle_t handle, const Convolution& c)
      : y_(c.y),
        type_(c.type),
        left_(1 + (c.residual ? 1 : 0) + (c.bias ? 1 : 0) + (c.activation != "none" ? 1 : 0)) {
    convolution(c);
    if (c.residual) append(pointwise(CUDNN_POINTWISE_ADD), &keep(tensor(*c.residual, kResidual, type_)));
    if (c.bias) append(pointwise(CUDNN_POINTWISE_ADD), &keep(tensor(*c.bias, kBias, type_)));
    if (c.activation != "none") append(pointwise(activations().at(c.activation), c.activation), nullptr);
    graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle)
        .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const Descriptor>(operations_))
        .finish();
  }

  const Descriptor& descriptor() const { return graph_; }

 private:
  const Descriptor& keep(Descriptor part) { return parts_.emplace_back(std::move(part)); }

  // What the next operation makes: y if it is the last, otherwise something that never gets to memory.
  const Descriptor& next_result() {
    if (--left_ == 0) return keep(tensor(y_, kY, type_));
    Layout between = y_;
    const auto& n = between.sizes;
    between.strides = {n[1] * n[2] * n[3], 1, n[1] * n[3], n[1]};
    return keep(tensor(between, kFirstBetween + left_, CUDNN_DATA_FLOAT, /*in_memory=*/false));
  }

  void convolution(const Convolution& c) {
    Descriptor how(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    how.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
        .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<std::int64_t>(c.stride.size()))
        .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c.stride)
        .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c.padding)
        .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, c.padding)
        .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, c.dilation)
        .finish();
    last_ = &next_result();
    Descriptor& operation = operations_.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, keep(std::move(how)))
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, keep(tensor(c.x, kX, type_)))
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, keep(tensor(c.weight, kWeight, type_)))
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, *last_)
        .finish();
  }

  void append(Descriptor how, const Descriptor* second) {
    const Descriptor& result = next_result();
    Descriptor& operation = operations_.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(how)))
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *last_)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result);
    if (second) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *second);
    operation.finish();
    last_ = &result;
  }

  Layout y_;
  cudnnDataType_t type_;
  int left_;                      // operations that are still to come
  std::deque<Descriptor> parts_;  // must live as long as what is made of them
  const Descriptor* last_ = nullptr;
  std::vector<Descriptor> operations_;
  Descriptor graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

// Whether an engine computes as PyTorch's settings allow.
bool is_allowed(const Descriptor& config, const Convolution& c) {
  const auto engine = config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  const auto notes = engine.at(0).get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  };
  const bool rounds = c.type == CUDNN_DATA_FLOAT && has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  return !has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) && (c.allow_tf32 || !rounds) &&
         !(c.deterministic && has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
}

struct Plan {
  Descriptor descriptor;
  std::int64_t workspace = 0;
};

// The ways to compute one convolution, each built when it is first asked for: that may take a compilation.
class Proposals {
 public:
  Proposals(cudnnHandle_t handle, const Convolution& convolution) : handle_(handle) {
    constexpr std::size_t kMost = 16;
    try {
      graph_.emplace(handle, convolution);
    } catch (const Error&) {
      return;  // nothing that cuDNN does
    }
    for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      try {
        Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
        heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_->descriptor())
            .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode)
            .finish();
        for (Descriptor& config :
             heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kMost)) {
          if (is_allowed(config, convolution)) configs_.push_back(std::move(config));
        }
      } catch (const Error&) {  // this one has nothing to propose
      }
    }
  }

  // None where there are not that many.
  const Plan* find(std::size_t n) {
    while (plans_.size() <= n && tried_ < configs_.size()) {
      try {
        Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_)
            .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs_[tried_++])
            .finish();
        const auto workspace = plan.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 1).at(0);
        if (workspace <= kMostWorkspace) plans_.push_back({std::move(plan), workspace});
      } catch (const Error&) {  // proposed, but not for this machine
      }
    }
    return n < plans_.size() ? &plans_[n] : nullptr;
  }

  std::size_t built() const { return plans_.size(); }

 private:
  cudnnHandle_t handle_;
  std::optional<Graph> graph_;
  std::vector<Descriptor> configs_;
  std::size_t tried_ = 0;
  std::vector<Plan> plans_;
};

void run(cudnnHandle_t handle, const Plan& plan, const Pointers& at) {
  const at::Tensor workspace = at::empty({plan.workspace}, at::device(at::kCUDA).dtype(at::kByte));
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  const auto give = [&](Id id, const void* pointer) {
    if (!pointer) return;
    ids.push_back(id);
    pointers.push_back(const_cast<void*>(pointer));
  };
  give(kX, at.x);
  give(kWeight, at.weight);
  give(kResidual, at.residual);
  give(kBias, at.bias);
  give(kY, at.y);
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace.mutable_data_ptr())
      .finish();
  check(cudnnBackendExecute(handle, plan.descriptor.handle(), pack.handle()), "run a convolution");
}

}  // namespace

bool has_activation(std::string_view name) { return name == "none" || activations().contains(name); }

bool convolve(const Convolution& convolution, const Pointers& pointers, std::int64_t candidate) {
  // A plan belongs to the handle that it was built for; PyTorch has one for each thread. They stay as long as
  // the process lives: at its end cuDNN may be gone before them.
  static std::mutex mutex;
  static auto& known = *new std::map<std::pair<cudnnHandle_t, Convolution>, Proposals>;

  const cudnnHandle_t handle = at::native::getCudnnHandle();
  const Plan* plan = nullptr;
  {
    const std::lock_guard lock(mutex);
    const auto place = known.try_emplace({handle, convolution}, handle, convolution).first;
    Proposals& proposals = place->second;
    plan = candidate < 0 ? nullptr : proposals.find(static_cast<std::size_t>(candidate));
    if (!plan && proposals.built() == 0) return false;
    if (!plan) {
      throw Error("[nimble::fused_convolution] cuDNN proposes " + std::to_string(proposals.built()) +
                  " ways for this convolution, there is no number " + std::to_string(candidate));
    }
  }
  run(handle, *plan, pointers);
  return true;
}

}  // namespace nimble::kernels::cudnn
