// A linear layer, with the activation behind it, becomes a product by tensor cores: rows are pixels of one
// image, and the weights filters of one pixel.
//
//   %1 = addmm(b, %0, w)             ──▶   %2 = matrix_convolution(%0, w, b, gelu)
//   %2 = gelu(%1)
//
// Without TF32 other libraries multiply float32 without tensor cores. Ours takes each number apart into two
// that they can multiply, and loses nothing by that.

#include <ATen/ATen.h>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/matrix_kernel.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"
#include "nimble/torch/rewrites/linear_layer.h"
#include "nimble/torch/tf32.h"

namespace nimble {
namespace {

// All that its buffer holds, `elements` in number, as they lie in memory.
bool is_flat(const TensorRef& ref, std::int64_t elements) {
  return ref.offset == 0 && ref.numel() == elements && is_contiguous(ref);
}

// Rows of `columns` numbers, as an image of one row of pixels with so many channels.
TensorRef as_pixels(TensorRef ref, std::int64_t rows, std::int64_t columns, std::int64_t step) {
  ref.sizes = {1, columns, 1, rows};
  ref.strides = {rows * step, 1, rows * step, step};
  return ref;
}

struct Site {
  TaskId first, last;  // the layer, and the activation behind it if there is one
  LinearLayer layer;
  std::string after = "none";
};

class Multiply {
 public:
  Multiply(const Program& program, const RewriteContext& context)
      : program_(program), context_(context), uses_(program), edit_(program), chooser_(context) {}

  Rewritten run() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      if (const auto site = find(TaskId{i})) rewrite(*site);
    }
    Rewritten result{.program = {}, .sites = std::move(sites_), .gained = chooser_.gained()};
    result.program = std::move(edit_).finish();
    return result;
  }

 private:
  std::optional<Site> find(TaskId id) const {
    auto layer = linear_of_weights(program_.task(id), uses_);
    if (!layer || uses_.maker(layer->result) != id || !is_flat(layer->result, layer->result.numel()))
      return {};
    const TensorRef& x = layer->input;
    const bool rows_lie_whole = x.strides[1] == 1 && x.strides[0] >= x.sizes[1];
    const bool one_type = x.dtype == layer->weight.dtype && x.dtype == layer->result.dtype &&
                          (!layer->bias || layer->bias->dtype == x.dtype);
    if (layer->result.numel() == 0 || x.sizes[1] == 0 || !rows_lie_whole || !one_type ||
        x.dtype == at::kDouble || !may_use_tensor_cores(x.dtype) || !uses_.never_rewritten(x) ||
        (layer->bias && layer->columns() > 1 && layer->bias->strides[0] != 1)) {
      return {};
    }
    Site site{.first = id, .last = id, .layer = *std::move(layer)};
    take_activation(site);
    return site;
  }

  // It may look at the rows as a batch of sentences: all that matters is that it goes over each element.
  void take_activation(Site& site) const {
    const TensorRef& made = site.layer.result;
    const auto readers = uses_.readers(made.buffer);
    if (!uses_.is_private(made.buffer) || readers.size() != 1) return;
    const Task& task = program_.task(readers[0]);
    const auto activation = fusible_activation(task);
    if (!activation || task.reads.size() != 1 || !is_flat(task.reads[0], made.numel())) return;
    const TensorRef& result = first_result(task);
    if (uses_.maker(result) != readers[0] || !is_flat(result, made.numel()) || result.dtype != made.dtype)
      return;
    site.last = readers[0];
    site.after = *activation;
  }

  void rewrite(const Site& site) {
    static const auto op = find_operator("nimble::matrix_convolution");
    const bool halves = site.layer.input.dtype != at::kFloat;
    if (halves && !context_.chooses()) return;  // other libraries use tensor cores for these
    const auto [weight, packing] = filters_of(site);
    const auto ways = ways_of(site, weight);
    const std::int64_t rows = site.layer.result.sizes[0], columns = site.layer.columns();
    const TensorRef result = as_pixels(first_result(program_.task(site.last)), rows, columns, columns);
    std::vector<std::vector<Task>> tasks;
    for (const MatrixWay& way : ways) {
      tasks.push_back({edit_.make_task(site.last, op, way.arguments, {result})});
    }
    tasks.push_back({program_.task(site.first)});
    if (site.last != site.first) tasks.back().push_back(program_.task(site.last));
    if (const auto fused = by_another_library(site)) tasks.push_back({*fused});
    const std::size_t best = chooser_.faster_of(edit_.buffers(), tasks);
    if (best >= ways.size()) return;
    chooser_.took(tasks[best], tasks[ways.size()]);
    if (packing) edit_.insert(site.first, packing->op, packing->arguments, packing->results);
    edit_.replace(site.last, op, ways[best].arguments, {result});
    if (site.last != site.first) edit_.drop(site.first);
    sites_.push_back(task_name(program_, site.first) + ": " + ways[best].name);
  }

  // As our kernel reads them: the numbers that make one column of the result beside each other. As PyTorch's
  // own layers have them; others are turned, once.
  std::pair<TensorRef, std::optional<Task>> filters_of(const Site& site) {
    static const auto clone = find_operator("aten::clone");
    const TensorRef& w = site.layer.weight;
    TensorRef rows = w;
    rows.sizes = {w.sizes[1], w.sizes[0]};
    rows.strides = {w.strides[1], w.strides[0]};
    std::optional<Task> packing;
    if (w.strides[0] != 1 && w.sizes[0] != 1) {
      const TensorRef packed = edit_.new_tensor(rows.sizes, w.dtype, program_.buffer(w.buffer).device);
      packing =
          edit_.make_task(site.first, clone, {rows, c10::IValue(at::MemoryFormat::Contiguous)}, {packed});
      rows = packed;
    }
    const std::int64_t columns = rows.sizes[0], inner = rows.sizes[1], step = rows.strides[0];
    rows.sizes = {columns, inner, 1, 1};
    rows.strides = {step, 1, inner, inner};
    return {rows, packing};
  }

  std::vector<MatrixWay> ways_of(const Site& site, const TensorRef& weight) const {
    const LinearLayer& layer = site.layer;
    const TensorRef& x = layer.input;
    const ImageConvolution product{.x = as_pixels(x, x.sizes[0], x.sizes[1], x.strides[0]),
                                   .weight = weight,
                                   .bias = layer.bias,
                                   .stride = {1, 1},
                                   .padding = {0, 0},
                                   .dilation = {1, 1},
                                   .groups = 1};
    const bool precise = context_.precise || !allows_tf32(at::Float32Op::MATMUL);
    auto ways = matrix_ways({product, {}, site.after}, precise);
    if (!context_.chooses()) ways.resize(1);
    return ways;
  }

  // cuBLASLt's product with a relu, which `linear_activation` would make of it.
  std::optional<Task> by_another_library(const Site& site) const {
    static const auto op = find_operator("aten::_addmm_activation");
    if (site.after != "relu" || !site.layer.bias || uses_.only_reader(site.first) != site.last) return {};
    std::vector<Operand> arguments = program_.task(site.first).arguments;
    arguments.emplace_back(c10::IValue(false));
    return edit_.make_task(site.last, op, std::move(arguments), {site.layer.result});
  }

  const Program& program_;
  const RewriteContext& context_;
  Uses uses_;
  Edit edit_;
  Chooser chooser_;
  std::vector<std::string> sites_;
};

Rewritten apply(Program program, const RewriteContext& context) { return Multiply(program, context).run(); }

}  // namespace

const Rewrite kMatrixLinear{.name = "matrix_linear",
                            .summary = "linear layers with their activations become products by tensor cores",
                            .on_cpu = false,
                            .apply = apply};

}  // namespace nimble
