// The sum of convolutions with filters of one pixel becomes one of them, over the channels of all.
//
//   %1 = mul(%0, …)                                    %4 = mul(%0, …, out = %4[:, :8])
//   %2 = max_pool2d(%0, …)                             %4 = max_pool2d(%0, …, out = %4[:, 8:])
//   %3 = nimble::matrix_convolution(%1, w, b)    ──▶   %5 = nimble::matrix_convolution(%4, cat(w, v), b + c)
//   %5 = nimble::matrix_convolution(%2, v, c, %3)
//
// It adds up in registers what the others would write and read again, and is one kernel to wait for instead
// of several, one after the other. Whoever makes the inputs writes them straight into their channels of one
// tensor; where one cannot, a copy would cost more than is gained. Cells of NASNet-A are full of such sums,
// of what depthwise convolutions make.
//
// It comes behind `fuse_convolution`, which chooses the kernels that make those inputs (PyTorch's own write
// no slices) and puts activations where they belong: of several terms each convolution takes in those before
// it, and the last one does what is behind their sum. It comes behind `fuse_pointwise`, whose kernels can
// make inputs too, and before `cat_by_address`, so that the result may be a part of something itself. Of
// convolutions that `group_convolutions` takes it wants none: their input has several readers.

#include <algorithm>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/matrix_kernel.h"
#include "nimble/torch/rewrites/cuda/slices.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"

namespace nimble {
namespace {

struct Summand {
  TaskId task;
  ConvolutionCall call;
  TaskId writer;  // of its input, which nobody else reads
};

// after(all products + added)
struct Products {
  TaskId last;                    // makes the sum
  std::vector<Summand> summands;  // in the order of the program
  std::vector<TensorRef> added;   // other terms
  std::string after = "none";
};

// What becomes of them, but for the kernel.
struct Whole {
  ConvolutionCall call;
  std::vector<Task> weights;  // that make its weights
  std::vector<Task> writers;  // by summand: as its input is made from now on
};

struct Way {
  std::string name;
  Task task;
};

class SumOfProducts {
 public:
  SumOfProducts(const Program& program, const RewriteContext& context)
      : program_(program),
        precise_(context.precise),
        uses_(program),
        depth_(depths(program)),
        edit_(program),
        chooser_(context) {}

  Rewritten run() {
    // From the last to the first: a sum of sums takes those in.
    for (auto i = static_cast<std::uint32_t>(program_.tasks.size()); i-- > 0;) {
      const auto products = products_at(TaskId{i});
      if (products && products->summands.size() > 1 && products->added.size() <= 1) make_one_of(*products);
    }
    std::reverse(sites_.begin(), sites_.end());
    Rewritten result{.program = {}, .sites = std::move(sites_), .gained = chooser_.gained()};
    result.program = std::move(edit_).finish();
    return result;
  }

 private:
  std::optional<Products> products_at(TaskId last) const {
    if (edit_.touches(last)) return {};
    Products products{.last = last, .summands = {}, .added = {}};
    if (const auto sum = plain_sum(program_.task(last))) {
      take(sum->a, last, products);
      take(sum->b, last, products);
    } else if (const auto summand = summand_at(last)) {
      products.after = summand->call.after;
      add(*summand, products);
    }
    if (products.summands.empty() || !is_made_channels_last(last)) return {};
    std::ranges::sort(products.summands, {}, &Summand::task);
    return products;
  }

  // As our kernels lay out their results.
  bool is_made_channels_last(TaskId task) const {
    const TensorRef& result = first_result(program_.task(task));
    return result.strides == channels_last_strides(result.sizes);
  }

  void add(const Summand& summand, Products& products) const {
    products.summands.push_back(summand);
    if (summand.call.added) take(*summand.call.added, summand.task, products);
  }

  // One of the terms that `reader` adds up.
  void take(const TensorRef& term, TaskId reader, Products& products) const {
    const auto maker = uses_.maker(term);
    const auto summand = maker && uses_.only_reader(*maker) == reader ? summand_at(*maker) : std::nullopt;
    if (summand && summand->call.after == "none" && can_be_done_in(products.last, *maker)) {
      add(*summand, products);
    } else {
      products.added.push_back(term);
    }
  }

  bool can_be_done_in(TaskId last, TaskId task) const {
    const Task &a = program_.task(task), &b = program_.task(last);
    return uses_.can_move(task, last) && a.part == b.part && same_form(first_result(a), first_result(b));
  }

  std::optional<Summand> summand_at(TaskId id) const {
    auto call = convolution_call(program_.task(id), uses_);
    if (!call) return {};
    const ImageConvolution& c = call->convolution;
    if (!c.is_matrix_product() || !suits_matrix_kernel(c) || !uses_.is_weight(c.weight) ||
        (c.bias && !uses_.is_weight(*c.bias))) {
      return {};
    }
    const auto writer = writer_of(c.x, id);
    return writer ? std::optional(Summand{id, *std::move(call), *writer}) : std::nullopt;
  }

  // Who makes `x`, for `reader` alone, and can write it to a slice.
  std::optional<TaskId> writer_of(const TensorRef& x, TaskId reader) const {
    const auto writers = uses_.writers(x.buffer), readers = uses_.readers(x.buffer);
    const auto looks = std::ranges::count(program_.task(reader).reads, x.buffer, &TensorRef::buffer);
    if (!uses_.is_private(x.buffer) || uses_.is_weight(x) || writers.size() != 1 || readers.size() != 1 ||
        looks != 1) {
      return {};
    }
    const Task& task = program_.task(writers[0]);
    const bool can_write = task.part == program_.task(reader).part && made_by(task) == std::vector{x} &&
                           out_form(task, device_of(x));
    return can_write ? std::optional(writers[0]) : std::nullopt;
  }

  c10::Device device_of(const TensorRef& ref) const { return program_.buffer(ref.buffer).device; }

  void make_one_of(const Products& products) {
    const Whole whole = whole_of(products);
    const std::vector<Way> ways = ways_of(whole.call, products.last);
    std::vector<std::vector<Task>> candidates;
    for (const Way& way : ways) candidates.push_back({way.task});
    const Way& best = ways[chooser_.faster_of(edit_.buffers(), candidates)];
    if (!is_faster(best.task, whole, products)) return;
    std::string site;
    for (const Task& task : whole.weights) {
      edit_.insert(products.last, task.op, task.arguments, task.results);
    }
    for (std::size_t s = 0; s < products.summands.size(); ++s) {
      const Summand& summand = products.summands[s];
      const Task& writer = whole.writers[s];
      edit_.replace(summand.writer, writer.op, writer.arguments, writer.results);
      if (summand.task != products.last) edit_.drop(summand.task);
      site += (s == 0 ? "" : " and ") + task_name(program_, summand.task);
    }
    edit_.replace(products.last, best.task.op, best.task.arguments, best.task.results);
    sites_.push_back(site + ": " + best.name);
  }

  Whole whole_of(const Products& products) {
    const ImageConvolution& first = products.summands.front().call.convolution;
    at::DimVector sizes = first.x.sizes;
    sizes[1] = 0;
    for (const Summand& summand : products.summands) sizes[1] += summand.call.convolution.x.sizes[1];
    TensorRef x = edit_.new_tensor(sizes, first.x.dtype, device_of(first.x));
    x.strides = channels_last_strides(sizes);

    Whole whole{
        .call = {.convolution = first, .added = {}, .after = products.after}, .weights = {}, .writers = {}};
    std::int64_t channel = 0;
    for (const Summand& summand : products.summands) {
      TensorRef slice = x;
      slice.sizes[1] = summand.call.convolution.x.sizes[1];
      slice.offset = channel;
      channel += slice.sizes[1];
      const Task& writer = program_.task(summand.writer);
      whole.writers.push_back(task_writing_to(
          {.refs = {slice}}, summand.writer, *out_form(writer, device_of(first.x)), writer.arguments, edit_));
    }
    whole.call.convolution.x = x;
    whole.call.convolution.weight = weights_of(products, whole.weights);
    whole.call.convolution.bias = bias_of(products, whole.weights);
    if (!products.added.empty()) whole.call.added = products.added.front();
    return whole;
  }

  // A filter of one pixel is a row of numbers, to which those of the others are appended.
  TensorRef weights_of(const Products& products, std::vector<Task>& made) {
    static const auto cat = find_operator("aten::cat");
    TensorRefList parts;
    std::int64_t channels = 0;
    for (const Summand& summand : products.summands) {
      TensorRef part = summand.call.convolution.weight;
      part.sizes.resize(2);
      part.strides.resize(2);
      channels += part.sizes[1];
      parts.refs.emplace_back(std::move(part));
    }
    const TensorRef& like = *parts.refs.front();
    TensorRef weight = edit_.new_tensor({like.sizes[0], channels}, like.dtype, device_of(like));
    made.push_back(edit_.make_task(products.last, cat, {parts, c10::IValue(1)}, {weight}));
    weight.sizes = {like.sizes[0], channels, 1, 1};
    weight.strides = {channels, 1, 1, 1};
    return weight;
  }

  std::optional<TensorRef> bias_of(const Products& products, std::vector<Task>& made) {
    static const auto plus = find_operator("aten::add", "Tensor");
    std::optional<TensorRef> sum;
    for (const Summand& summand : products.summands) {
      const auto& bias = summand.call.convolution.bias;
      if (sum && bias) {
        const TensorRef both = edit_.new_tensor(bias->sizes, bias->dtype, device_of(*bias));
        made.push_back(edit_.make_task(products.last, plus, {*sum, *bias, c10::IValue(1)}, {both}));
        sum = both;
      } else if (bias) {
        sum = bias;
      }
    }
    return sum;
  }

  std::vector<Way> ways_of(const ConvolutionCall& call, TaskId last) const {
    static const auto ours = find_operator("nimble::matrix_convolution"),
                      cublas = find_operator("nimble::pointwise_convolution");
    const std::vector<Operand>& results = program_.task(last).results;
    std::vector<Way> ways;
    for (MatrixWay& way : matrix_ways(call, precise_)) {
      ways.push_back({way.name, edit_.make_task(last, ours, std::move(way.arguments), results)});
    }
    if (precise_ && call.convolution.x.dtype == at::kFloat) return ways;
    constexpr std::int64_t kProposals = 2;
    for (std::int64_t n = 0; n < kProposals; ++n) {
      ways.push_back({"pointwise_convolution " + std::to_string(n),
                      edit_.make_task(last, cublas, product_arguments(cublas, call, n), results)});
    }
    return ways;
  }

  // Whoever waits for the sum waits for one product after the other now, if all inputs are there at the same
  // time. Products whose inputs are there earlier may be over by then, and only the others are waited for:
  // that takes longer beside what else runs than alone, as in `group_convolutions`. And slices, which are
  // aligned as the channels before them leave them, must not cost what is gained.
  bool is_faster(const Task& product, const Whole& whole, const Products& products) {
    constexpr double kBesideOthers = 2, kAtAll = 1;
    const std::vector<Task> apart = tasks_of(products);
    std::vector<Task> with_inputs_now = whole.writers, with_inputs;
    for (const Summand& summand : products.summands) with_inputs.push_back(program_.task(summand.writer));
    with_inputs.insert(with_inputs.end(), apart.begin(), apart.end());
    with_inputs_now.push_back(product);
    const std::vector<std::vector<Task>> all = {with_inputs, with_inputs_now},
                                         latest = {tasks_of(with_latest_inputs(products)), {product}};
    const bool is_faster = chooser_.faster_of(edit_.buffers(), all, kAtAll) == 1 &&
                           chooser_.faster_of(edit_.buffers(), latest, kBesideOthers) == 1 &&
                           chooser_.faster_than_side_by_side(edit_.buffers(), {product}, apart);
    if (is_faster) chooser_.took(with_inputs_now, with_inputs);
    return is_faster;
  }

  Products with_latest_inputs(Products products) const {
    const auto depth = [&](const Summand& summand) { return depth_[summand.writer.index()]; };
    const std::size_t latest = depth(std::ranges::max(products.summands, {}, depth));
    std::erase_if(products.summands, [&](const Summand& summand) { return depth(summand) < latest; });
    return products;
  }

  // What computes them now: the last product takes the sum in, or a task of its own does.
  std::vector<Task> tasks_of(const Products& products) const {
    std::vector<Task> tasks;
    for (const Summand& summand : products.summands) tasks.push_back(program_.task(summand.task));
    if (plain_sum(program_.task(products.last))) tasks.push_back(program_.task(products.last));
    return tasks;
  }

  const Program& program_;
  bool precise_;
  Uses uses_;
  std::vector<std::size_t> depth_;
  Edit edit_;
  Chooser chooser_;
  std::vector<std::string> sites_;
};

Rewritten apply(Program program, const RewriteContext& context) {
  if (!context.chooses()) return {.program = std::move(program)};
  return SumOfProducts(program, context).run();
}

}  // namespace

const Rewrite kSumOfProducts{
    .name = "sum_of_products",
    .summary =
        "the sum of convolutions with filters of one pixel becomes one of them, over the channels of all, "
        "where that is faster",
    .on_cpu = false,
    .apply = apply};

}  // namespace nimble
