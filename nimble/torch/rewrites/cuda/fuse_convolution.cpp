// A convolution takes the activation before it, and the bias, the sum and the activation behind it, into one
// call.
//
//   %1 = convolution(%0, w, b, …)
//   %2 = add(%1, %9)                 ──▶   %3 = cudnn_convolution_add_relu(%0, w, %9, b, …)
//   %3 = relu(%2)
//
// Which call is fastest differs from one convolution to the next, so each is measured: cuDNN's fused ones (by
// its graphs, or as PyTorch calls it), a matrix product (cuBLASLt's for a filter of one pixel, our own for
// any), our own kernel for one filter to a channel, or a plain convolution followed by one generated kernel
// for all that is pointwise.
//
// Where float32 may not be rounded to TF32, only kernels of our own, which multiply it in parts, and plain
// convolutions that are told so are left, and every other convolution is told so too.

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "nimble/kernels/depthwise_source.h"
#include "nimble/kernels/expression.h"
#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/convolution_settings.h"
#include "nimble/torch/rewrites/cuda/matrix_kernel.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"

namespace nimble {
namespace {

struct Call {
  c10::OperatorHandle op;
  std::vector<Operand> arguments;
  std::vector<Operand> results;
};

// One way to compute a site. `prepare` makes weights, which happens once and is not measured.
struct Way {
  std::string name;
  std::vector<Call> prepare;
  std::vector<Call> calls;  // the last one makes the site's result
};

// after(convolution(before(x)) + bias + added)
struct Site {
  TaskId first, last;           // the convolution, and the task whose result the site makes
  std::vector<TaskId> between;  // what else becomes part of it
  ImageConvolution convolution;
  std::optional<TaskId> activation_before;
  std::string before = "none", after = "none";
  std::optional<TensorRef> added;
};

class Fuse {
 public:
  Fuse(const Program& program, const RewriteContext& context)
      : program_(program), context_(context), uses_(program), edit_(program), chooser_(context) {}

  Rewritten run() {
    // Of two convolutions that are summed, the later one takes the sum in: it has to wait anyway.
    const auto depth = depths(program_);
    std::vector<std::uint32_t> order(program_.tasks.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return depth[a] > depth[b]; });
    for (const std::uint32_t i : order) {
      if (auto site = find(TaskId{i})) fuse(*site);
    }
    for (const auto& [activation, taken] : taken_before_) {
      if (taken == uses_.readers(first_result(program_.task(activation)).buffer).size() &&
          uses_.is_private(first_result(program_.task(activation)).buffer)) {
        edit_.drop(activation);
      }
    }
    std::reverse(sites_.begin(), sites_.end());
    if (context_.precise) keep_precision_elsewhere();
    Rewritten result{.program = {}, .sites = std::move(sites_), .gained = chooser_.gained()};
    result.program = std::move(edit_).finish();
    return result;
  }

 private:
  std::optional<Site> find(TaskId id) const {
    auto convolution = image_convolution(program_.task(id), uses_);
    if (!convolution || !uses_.never_rewritten(convolution->x)) return {};
    Site site{.first = id,
              .last = id,
              .between = {},
              .convolution = *std::move(convolution),
              .activation_before = {},
              .added = {}};
    if (site.convolution.is_depthwise()) take_activation_before(site);
    const auto reader = uses_.only_reader(id);
    if (!reader || edit_.touches(*reader) || taken_before_.contains(*reader)) return site;
    if (const auto activation = fusible_activation(program_.task(*reader))) {
      site.last = *reader;
      site.after = *activation;
    } else if (const auto sum = plain_sum(program_.task(*reader)); sum && !site.convolution.is_depthwise()) {
      take_sum(site, *reader, *sum);
    }
    return site;
  }

  // An activation that several convolutions share is done by each, in place of one kernel that all wait for.
  // One that the convolution before it can do is left to that: cuDNN and cuBLASLt know relu, but not relu6.
  void take_activation_before(Site& site) const {
    const auto maker = uses_.maker(site.convolution.x);
    if (!maker || edit_.touches(*maker)) return;
    const auto activation = fusible_activation(program_.task(*maker));
    if (activation != "relu" && activation != "relu6") return;
    const TensorRef& x = *tensor_argument(program_.task(*maker), 0);
    if (x.sizes != site.convolution.x.sizes || !uses_.never_rewritten(x)) return;
    const auto before = uses_.maker(x);
    const bool belongs_to_other =
        before && uses_.only_reader(*before) == *maker && image_convolution(program_.task(*before), uses_);
    const bool only_mine = activation == "relu6" && uses_.only_reader(*maker) == site.first;
    if (belongs_to_other && !only_mine) return;
    site.activation_before = maker;
    site.before = *activation;
    site.convolution.x = x;
  }

  void take_sum(Site& site, TaskId id, const Sum& sum) const {
    const TensorRef& mine = first_result(program_.task(site.first));
    if (sum.a.buffer == sum.b.buffer) return;
    const TensorRef& other = sum.a.buffer == mine.buffer ? sum.b : sum.a;
    if (!uses_.never_rewritten(other)) return;
    site.added = other;
    site.last = id;
    const auto reader = uses_.only_reader(id);
    if (!reader || edit_.touches(*reader)) return;
    if (const auto activation = fusible_activation(program_.task(*reader))) {
      site.between.push_back(id);
      site.last = *reader;
      site.after = *activation;
    }
  }

  void fuse(const Site& site) {
    std::vector<Way> ways = ways_of(site);
    if (ways.empty()) return;
    ways.push_back(as_it_is(site));
    std::vector<std::vector<Task>> tasks;
    for (const Way& way : ways) {
      std::vector<Task>& of_way = tasks.emplace_back();
      for (const Call& call : way.calls) {
        of_way.push_back(edit_.make_task(site.last, call.op, call.arguments, call.results));
      }
    }
    const std::size_t best = site.convolution.is_depthwise() ? choose_depthwise(site, tasks)
                                                             : chooser_.faster_of(edit_.buffers(), tasks);
    if (best + 1 == ways.size()) return;
    chooser_.took(tasks[best], tasks.back());
    Way& way = ways[best];
    for (Call& call : way.prepare) {
      edit_.insert(site.first, call.op, std::move(call.arguments), std::move(call.results));
    }
    for (std::size_t c = 0; c + 1 < way.calls.size(); ++c) {
      edit_.insert(site.last, way.calls[c].op, std::move(way.calls[c].arguments),
                   std::move(way.calls[c].results));
    }
    Call& made = way.calls.back();
    edit_.replace(site.last, made.op, std::move(made.arguments), std::move(made.results));
    if (site.first != site.last) edit_.drop(site.first);
    for (const TaskId task : site.between) edit_.drop(task);
    if (site.activation_before) ++taken_before_[*site.activation_before];
    sites_.push_back(task_name(program_, site.first) + " with what surrounds it: " + way.name);
  }

  // cuDNN compiles a kernel for every shape of a depthwise convolution, which takes longer than all else that
  // is measured here. So where the better of ours is clearly faster for one shape, it is taken to be for all
  // with such a filter.
  std::size_t choose_depthwise(const Site& site, std::span<const std::vector<Task>> ours_and_as_it_is) {
    constexpr double kClearly = 1.25;
    const TensorRef& filters = site.convolution.weight;
    const std::array kind = {filters.sizes[2], filters.sizes[3], static_cast<std::int64_t>(filters.dtype)};
    const std::size_t as_it_is = ours_and_as_it_is.size() - 1;
    const std::size_t best = chooser_.faster_of(edit_.buffers(), ours_and_as_it_is.first(as_it_is));
    if (clearly_faster_.contains(kind)) return best;
    const std::array two = {ours_and_as_it_is[best], ours_and_as_it_is[as_it_is]};
    if (chooser_.faster_of(edit_.buffers(), two, kClearly) == 0) {
      clearly_faster_.insert(kind);
      return best;
    }
    return chooser_.faster_of(edit_.buffers(), two) == 0 ? best : as_it_is;
  }

  // Also convolutions that are no site, and those that are fastest as they were.
  void keep_precision_elsewhere() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      const TaskId id{i};
      if (edit_.touches(id) || !may_round_to_tf32(program_.task(id))) continue;
      Task task = allowed(program_.task(id));
      edit_.replace(id, task.op, std::move(task.arguments), std::move(task.results));
      sites_.push_back(task_name(program_, id) + ": without TF32");
    }
  }

  // A task of the program, as precise as it has to be.
  Task allowed(const Task& task) const {
    return context_.precise && may_round_to_tf32(task) ? without_tf32(task) : task;
  }

  // The tasks as they are, to measure against.
  Way as_it_is(const Site& site) const {
    Way way{.name = "as it was", .prepare = {}, .calls = {}};
    std::vector<TaskId> ids;
    if (site.activation_before) ids.push_back(*site.activation_before);
    ids.push_back(site.first);
    ids.insert(ids.end(), site.between.begin(), site.between.end());
    if (site.last != site.first) ids.push_back(site.last);
    for (const TaskId id : ids) {
      Task task = allowed(program_.task(id));
      way.calls.push_back({task.op, std::move(task.arguments), std::move(task.results)});
    }
    return way;
  }

  // The first is what is taken where nothing is measured.
  std::vector<Way> ways_of(const Site& site) {
    if (site.convolution.is_depthwise()) return depthwise_ways(site);
    const bool is_float32 = site.convolution.x.dtype == at::kFloat;
    return context_.precise && is_float32 ? precise_ways_of(site) : all_ways_of(site);
  }

  std::vector<Way> all_ways_of(const Site& site) {
    const ImageConvolution& c = site.convolution;
    std::vector<Way> ways;
    const bool is_product = c.is_matrix_product() && is_channels_last(c.x);
    const bool by_tensor_cores = context_.chooses() && suits_matrix_kernel(c);
    // Of a product with a sum, our own kernels were faster than cuDNN's for all shapes of the networks that
    // are benchmarked, and cuDNN takes more than a second before the first.
    const bool never_wins = is_product && by_tensor_cores && site.added;
    if (site.after == "relu" && context_.device.is_cuda() && !never_wins) ways.push_back(cudnn(site));
    if (is_product) {
      constexpr std::int64_t kProposals = 2;
      const std::int64_t proposals = context_.chooses() ? kProposals : 1;
      for (std::int64_t n = 0; n < proposals; ++n) {
        ways.push_back(cublas_product(site, n));
      }
    }
    if (by_tensor_cores) add_tiles(ways, site);
    // Each costs time to measure, and these seldom win then.
    const bool several = is_product && ways.size() > 2;
    if (has_epilogue(site) && !several) ways.push_back(convolution_and_pointwise(site));
    // ATen has cuDNN's kernels with a relu, which need no plans of our own.
    if (has_epilogue(site) && !several && site.after != "relu" && context_.measure && has_cudnn_graphs()) {
      constexpr std::int64_t kProposals = 2;
      for (std::int64_t n = 0; n < kProposals; ++n) ways.push_back(cudnn_graph(site, n));
    }
    return ways;
  }

  // Those that round float32 no more than float32 does. Without TF32 other libraries' kernels use no tensor
  // cores, so ours are worth looking at even for few channels.
  std::vector<Way> precise_ways_of(const Site& site) {
    const ImageConvolution& c = site.convolution;
    std::vector<Way> ways;
    const bool usually_wins = c.is_matrix_product() && is_channels_last(c.x);
    if (fits_matrix_kernel(c) && (context_.chooses() || usually_wins)) add_tiles(ways, site);
    if (has_epilogue(site)) ways.push_back(convolution_and_pointwise(site));
    return ways;
  }

  static bool has_epilogue(const Site& site) {
    return site.convolution.bias || site.added || site.after != "none";
  }

  // Our kernel wants the channels of a pixel beside each other. Those of the user's own images seldom are; a
  // convolution of cuDNN's would turn them too.
  void add_tiles(std::vector<Way>& ways, Site site) {
    static const auto op = find_operator("nimble::matrix_convolution"), clone = find_operator("aten::clone");
    const TensorRef image = site.convolution.x;
    std::vector<Call> before;
    if (!is_channels_last(image)) {
      TensorRef& x = site.convolution.x;
      x = edit_.new_tensor(image.sizes, image.dtype, program_.buffer(image.buffer).device);
      x.strides = channels_last_strides(image.sizes);
      before = {{clone, {image, c10::IValue(at::MemoryFormat::ChannelsLast)}, {x}}};
    }
    auto all = matrix_ways({site.convolution, site.added, site.after}, context_.precise);
    if (!context_.chooses()) all.resize(1);
    for (MatrixWay& way : all) {
      Way& added = ways.emplace_back(Way{.name = "nimble::" + way.name, .prepare = {}, .calls = before});
      added.calls.push_back({op, std::move(way.arguments), {result_of(site)}});
    }
  }

  std::vector<Way> depthwise_ways(const Site& site) {
    static const auto op = find_operator("nimble::depthwise_convolution"),
                      clone = find_operator("aten::clone");
    const ImageConvolution& c = site.convolution;
    const TensorRef& w = c.weight;
    // Filters with neighbouring channels beside each other: [height, width, 1, channels].
    TensorRef turned = w;
    turned.sizes = {w.sizes[2], w.sizes[3], w.sizes[1], w.sizes[0]};
    turned.strides = {w.strides[2], w.strides[3], w.strides[1], w.strides[0]};
    const TensorRef packed = edit_.new_tensor(turned.sizes, w.dtype, program_.buffer(w.buffer).device);
    TensorRef weight = packed;
    weight.sizes = w.sizes;
    weight.strides = {1, w.sizes[0], w.sizes[3] * w.sizes[0], w.sizes[0]};
    std::vector<Way> ways;
    for (std::int64_t n = 0; n < (context_.chooses() ? kernels::kDepthwiseCandidates : 1); ++n) {
      ways.push_back({.name = "depthwise_convolution " + std::to_string(n),
                      .prepare = {{clone, {turned, c10::IValue(at::MemoryFormat::Contiguous)}, {packed}}},
                      .calls = {{op,
                                 {c.x, weight, optional_ref(c.bias), c10::IValue(c.stride),
                                  c10::IValue(c.padding), c10::IValue(c.dilation), c10::IValue(site.before),
                                  c10::IValue(site.after), c10::IValue(n)},
                                 {result_of(site)}}}});
    }
    return ways;
  }

  bool has_cudnn_graphs() const {
    static const auto op = find_operator("nimble::fused_convolution");
    return context_.device.is_cuda() && op.hasKernelForDispatchKey(c10::DispatchKey::CUDA);
  }

  Way cudnn_graph(const Site& site, std::int64_t proposal) {
    static const auto op = find_operator("nimble::fused_convolution");
    const ImageConvolution& c = site.convolution;
    return {.name = "fused_convolution " + std::to_string(proposal),
            .prepare = {},
            .calls = {{op,
                       {c.x, c.weight, optional_ref(c.bias), optional_ref(site.added), c10::IValue(c.stride),
                        c10::IValue(c.padding), c10::IValue(c.dilation), c10::IValue(c.groups),
                        c10::IValue(site.after), c10::IValue(proposal)},
                       {result_of(site)}}}};
  }

  Way cudnn(const Site& site) {
    static const auto plain = find_operator("aten::cudnn_convolution_relu"),
                      with_sum = find_operator("aten::cudnn_convolution_add_relu");
    const ImageConvolution& c = site.convolution;
    std::vector<Operand> arguments = {c.x, c.weight};
    if (site.added) {
      arguments.insert(arguments.end(), {Operand(*site.added), Operand(c10::IValue(1.0))});
    }
    arguments.insert(arguments.end(),
                     {optional_ref(c.bias), Operand(c10::IValue(c.stride)), Operand(c10::IValue(c.padding)),
                      Operand(c10::IValue(c.dilation)), Operand(c10::IValue(c.groups))});
    return {.name = site.added ? "cudnn_convolution_add_relu" : "cudnn_convolution_relu",
            .prepare = {},
            .calls = {{site.added ? with_sum : plain, std::move(arguments), {result_of(site)}}}};
  }

  Way cublas_product(const Site& site, std::int64_t proposal) {
    static const auto op = find_operator("nimble::pointwise_convolution");
    const ConvolutionCall call{site.convolution, site.added, site.after};
    return {.name = "nimble::pointwise_convolution " + std::to_string(proposal),
            .prepare = {},
            .calls = {{op, product_arguments(op, call, proposal), {result_of(site)}}}};
  }

  Way convolution_and_pointwise(const Site& site) {
    static const auto op = find_operator("nimble::pointwise");
    using namespace kernels;
    Task convolution = allowed(program_.task(site.first));
    const TensorRef& shape = first_result(convolution);
    TensorRef bare = edit_.new_tensor(shape.sizes, shape.dtype, program_.buffer(shape.buffer).device);
    bare.strides = shape.strides;
    convolution.arguments[2] = c10::IValue();  // no bias
    Expression expression{.inputs = 1, .steps = {}, .results = {}};
    TensorRefList inputs{.refs = {bare}};
    Value value = input(0);
    const auto add = [&](const TensorRef& ref) {
      inputs.refs.emplace_back(ref);
      expression.steps.push_back({"add.Tensor", {value, input(expression.inputs++), c10::IValue(1)}});
      value = step(expression.steps.size() - 1);
    };
    if (site.convolution.bias) {
      TensorRef bias = *site.convolution.bias;
      const auto stride = bias.strides[0];
      bias.sizes = {bias.sizes[0], 1, 1};
      bias.strides = {stride, 1, 1};
      add(bias);
    }
    if (site.added) add(*site.added);
    if (site.after != "none") {
      expression.steps.push_back(activation_step(program_.task(site.last), value));
      value = step(expression.steps.size() - 1);
    }
    expression.results = {value};
    return {.name = "convolution and pointwise",
            .prepare = {},
            .calls = {{convolution.op, std::move(convolution.arguments), {bare}},
                      {op, {inputs, c10::IValue(to_string(expression))}, {list_of(result_of(site))}}}};
  }

  // The same call of ATen's, on another value.
  static kernels::Step activation_step(const Task& task, kernels::Value value) {
    std::vector<kernels::Argument> arguments = {value};
    for (std::size_t a = 1; a < task.arguments.size(); ++a) arguments.emplace_back(value_argument(task, a));
    return {task.op.operator_name().name.substr(std::string_view("aten::").size()), std::move(arguments)};
  }

  static TensorRefList list_of(const TensorRef& ref) { return {.refs = {ref}}; }
  const TensorRef& result_of(const Site& site) const { return first_result(program_.task(site.last)); }

  const Program& program_;
  const RewriteContext& context_;
  Uses uses_;
  Edit edit_;
  Chooser chooser_;
  std::map<TaskId, std::size_t> taken_before_;  // by activation: how many of its readers do it themselves
  std::set<std::array<std::int64_t, 3>> clearly_faster_;  // kinds of depthwise convolutions
  std::vector<std::string> sites_;
};

Rewritten apply(Program program, const RewriteContext& context) { return Fuse(program, context).run(); }

}  // namespace

const Rewrite kFuseConvolution{
    .name = "fuse_convolution",
    .summary =
        "convolutions take in the activations, biases and sums around them, by the call that is fastest",
    .on_cpu = false,
    .apply = apply};

}  // namespace nimble
