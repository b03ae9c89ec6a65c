// A depthwise convolution and the convolution with a filter of one pixel behind it become one kernel, which
// makes what lies between them where it is needed.
//
//   %1 = nimble::depthwise_convolution(%0, f, …)
//   %2 = nimble::pointwise_convolution(%1, w, b, …)   ──▶   %2 = nimble::matrix_convolution(%0, w, b, …, f,
//   …)
//
// Blocks of the new kernel that make different channels of the same pixels repeat the depthwise part, so it
// is measured against the two. Alone it may be quicker and still keep more of the device busy than they do,
// which costs whatever runs at the same time: so it is for programs that are chains.

#include <algorithm>

#include "nimble/core/critical_path.h"
#include "nimble/torch/dependencies.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/matrix_kernel.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"

namespace nimble {
namespace {

namespace depthwise {  // the arguments of nimble::depthwise_convolution, by place
enum Argument { kInput, kFilters, kBias, kStride, kPadding, kDilation, kBefore, kAfter };
}
namespace matrix {  // and the first ones of nimble::matrix_convolution
enum Argument { kInput, kWeight, kBias, kResidual, kActivation };
}

// A convolution with a filter of one pixel, as fuse_convolution left it.
struct Dense {
  Operand weight, bias, residual, activation;
};

std::optional<Dense> dense(const Task& task, const Uses& uses) {
  const auto call = convolution_call(task, uses);
  if (!call || !call->convolution.is_matrix_product() || is_call_of(task, "aten::convolution")) return {};
  return Dense{call->convolution.weight, optional_ref(call->convolution.bias), optional_ref(call->added),
               c10::IValue(call->after)};
}

// What the kernel is made for: its loops over the filter are unrolled.
bool is_small(const Task& task) {
  constexpr std::int64_t kLargest = 7;
  const TensorRef& filters = *tensor_argument(task, depthwise::kFilters);
  const auto dilation = value_argument(task, depthwise::kDilation).toIntVector();
  return filters.sizes[2] <= kLargest && filters.sizes[3] <= kLargest &&
         std::all_of(dilation.begin(), dilation.end(), [](std::int64_t d) { return d == 1; });
}

class Separable {
 public:
  Separable(const Program& program, const RewriteContext& context)
      : program_(program), context_(context), uses_(program), edit_(program), chooser_(context) {}

  Rewritten run() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) fuse(TaskId{i});
    Rewritten result{.program = {}, .sites = std::move(sites_), .gained = chooser_.gained()};
    result.program = std::move(edit_).finish();
    return result;
  }

 private:
  void fuse(TaskId first) {
    using namespace depthwise;
    const Task& task = program_.task(first);
    if (!is_call_of(task, "nimble::depthwise_convolution") || !is_small(task)) return;
    const TensorRef& x = *tensor_argument(task, kInput);
    const auto last = uses_.only_reader(first);
    if (!last || !is_channels_last(x) || !may_use_tensor_cores(x.dtype)) return;
    const Task& reader = program_.task(*last);
    const auto product = dense(reader, uses_);
    const TensorRef* read = product ? tensor_argument(reader, 0) : nullptr;
    if (!read || !(*read == first_result(task)) || !uses_.can_move(first, *last)) return;

    const auto maker = takes_activation(first);
    const Operand before = maker ? c10::IValue("none") : task.arguments[kBefore];
    constexpr std::int64_t kTiles = 2;  // each is a kernel to compile, and the others seldom win
    static const auto op = find_operator("nimble::matrix_convolution");
    const auto& a = task.arguments;
    std::vector<std::vector<Operand>> arguments;
    std::vector<std::vector<Task>> ways;
    for (std::int64_t n = 0; n < (context_.chooses() ? kTiles : 1); ++n) {
      arguments.push_back({x, product->weight, product->bias, product->residual, product->activation,
                           c10::IValue(n), a[kFilters], a[kBias], a[kStride], a[kPadding], a[kDilation],
                           before, a[kAfter]});
      add_defaults(op, arguments.back());
      ways.push_back({edit_.make_task(*last, op, arguments.back(), reader.results)});
    }
    ways.push_back({task, reader});
    const std::size_t best = chooser_.faster_of(edit_.buffers(), ways);
    if (best == arguments.size()) return;
    chooser_.took(ways[best], ways.back());
    edit_.replace(*last, op, std::move(arguments[best]), reader.results);
    edit_.drop(first);
    if (maker) {
      std::vector<Operand> with_activation = program_.task(*maker).arguments;
      with_activation[matrix::kActivation] = task.arguments[kBefore];
      edit_.replace(*maker, op, std::move(with_activation), program_.task(*maker).results);
    }
    sites_.push_back(task_name(program_, first) + " and " + task_name(program_, *last) +
                     ": matrix_convolution " + std::to_string(best));
  }

  // The product that makes what this depthwise convolution alone reads, if it can do the activation in
  // between: there it is done once for each value, here once for each use.
  std::optional<TaskId> takes_activation(TaskId first) const {
    const Task& task = program_.task(first);
    if (value_argument(task, depthwise::kBefore).toStringRef() == "none") return {};
    const auto maker = uses_.maker(*tensor_argument(task, depthwise::kInput));
    if (!maker || edit_.touches(*maker) || uses_.only_reader(*maker) != first) return {};
    const Task& product = program_.task(*maker);
    const bool does_nothing_yet = is_call_of(product, "nimble::matrix_convolution") &&
                                  value_argument(product, matrix::kActivation).toStringRef() == "none";
    return does_nothing_yet ? maker : std::nullopt;
  }

  const Program& program_;
  const RewriteContext& context_;
  Uses uses_;
  Edit edit_;
  Chooser chooser_;
  std::vector<std::string> sites_;
};

// NASNet-A mobile, where it is 3.6 on average, took 0.310 ms on an H200 with these kernels and 0.290 without.
bool has_tasks_side_by_side(const Program& program) {
  constexpr double kOnAverage = 2;
  const Uses uses(program);
  Program running = program;
  std::erase_if(running.tasks, [&](const Task& task) { return uses.makes_weights(task); });
  const TaskGraph graph = dependencies(running);
  return static_cast<double>(graph.task_count()) >=
         kOnAverage * static_cast<double>(critical_path(graph).size());
}

Rewritten apply(Program program, const RewriteContext& context) {
  if (has_tasks_side_by_side(program)) return {.program = std::move(program)};
  return Separable(program, context).run();
}

}  // namespace

const Rewrite kSeparableConvolution{
    .name = "separable_convolution",
    .summary =
        "depthwise convolutions become part of the convolution with a filter of one pixel behind them, "
        "where one kernel is faster than two and little runs beside them",
    .on_cpu = false,
    .apply = apply};

}  // namespace nimble
