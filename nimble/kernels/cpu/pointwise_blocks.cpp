#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "nimble/kernels/cpu/block_program.h"
#include "nimble/kernels/iteration.h"

namespace nimble::kernels {
namespace {

constexpr std::int64_t kBlock = BlockProgram::kBlock;

// Read once, since replays ask for the same ones again and again.
struct Known {
  Expression expression;
  std::optional<BlockProgram> program;
};
std::shared_ptr<const Known> known(std::string_view text) {
  constexpr std::size_t kMost = 1024;  // numbers that change from recording to recording are part of them
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Known>, std::less<>> all;
  const std::lock_guard lock(mutex);
  if (const auto found = all.find(text); found != all.end()) return found->second;
  if (all.size() >= kMost) all.clear();
  Expression expression = parse_expression(text);
  auto program = BlockProgram::from(expression);
  return all.emplace(text, std::make_shared<const Known>(Known{std::move(expression), std::move(program)}))
      .first->second;
}

bool is_float_on_host(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat && tensor.layout() == at::kStrided &&
         !tensor.is_neg();
}

at::DimVector broadcast_sizes(at::TensorList inputs) {
  at::DimVector sizes(inputs[0].sizes());
  for (const at::Tensor& input : inputs.slice(1)) sizes = at::infer_size_dimvector(sizes, input.sizes());
  return sizes;
}

// One that is made of a few inputs could be smaller than what all of them are spread over.
bool have_all_results(const BlockProgram& program, at::TensorList inputs, at::IntArrayRef sizes) {
  return std::ranges::all_of(program.made_of(), [&](const std::vector<std::size_t>& made_of) {
    if (made_of.empty() || made_of.size() == inputs.size()) return !made_of.empty();
    std::vector<at::Tensor> own;
    for (const std::size_t input : made_of) own.push_back(inputs[input]);
    return broadcast_sizes(own) == sizes;
  });
}

// Laid out like the first input that has as many elements.
at::Tensor new_result(at::TensorList inputs, at::IntArrayRef sizes) {
  for (const at::Tensor& input : inputs) {
    if (input.sizes() == sizes && input.is_non_overlapping_and_dense()) {
      return at::empty_strided(sizes, input.strides(), input.options());
    }
  }
  return at::empty(sizes, inputs[0].options());
}

// What the loops read: elements one after the other in the order in which the result lies, or else brought
// into it block by block.
class BlockInput {
 public:
  BlockInput(const at::Tensor& tensor, const std::vector<Dimension>& dimensions, std::size_t number)
      : data_(tensor.const_data_ptr<float>()) {
    std::int64_t behind = 1;
    for (auto dimension = dimensions.rbegin(); dimension != dimensions.rend(); ++dimension) {
      is_flat_ &= dimension->size == 1 || dimension->strides[number] == behind;
      behind *= dimension->size;
      sizes_.insert(sizes_.begin(), dimension->size);
      strides_.insert(strides_.begin(), dimension->strides[number]);
    }
  }

  // Every row along the fastest dimension is the same one, as a bias is for every pixel.
  bool repeats_a_row() const {
    return !is_flat_ && std::all_of(strides_.begin(), strides_.end() - 1, is_zero);
  }
  // What was brought for one block is what the next one needs.
  bool is_the_same_in_blocks_of(std::int64_t count) const {
    return repeats_a_row() && (count % sizes_.back() == 0 || is_zero(strides_.back()));
  }

  // `count` elements from number `first` on; `room` may be used for them.
  const float* block(std::int64_t first, std::int64_t count, float* room) const {
    if (is_flat_) return data_ + first;
    const std::int64_t row = sizes_.back(), stride = strides_.back();
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t column = (first + done) % row, length = std::min(row - column, count - done);
      const float* from = data_ + begin_of_row((first + done) / row) + column * stride;
      float* to = room + done;
      if (stride == 1) {
        std::memcpy(to, from, static_cast<std::size_t>(length) * sizeof(float));
      } else if (stride == 0) {
        std::fill_n(to, length, *from);
      } else {
        for (std::int64_t i = 0; i < length; ++i) to[i] = from[i * stride];
      }
      done += length;
    }
    return room;
  }

 private:
  static bool is_zero(std::int64_t stride) { return stride == 0; }

  std::int64_t begin_of_row(std::int64_t number) const {
    std::int64_t begin = 0;
    for (std::size_t d = sizes_.size() - 1; d-- > 0;) {
      begin += number % sizes_[d] * strides_[d];
      number /= sizes_[d];
    }
    return begin;
  }

  const float* data_;
  bool is_flat_ = true;
  at::DimVector sizes_, strides_;
};

// How many elements a block has: whole rows, where they fit, so that what repeats a row is the same in each.
std::int64_t block_of(const std::vector<BlockInput>& inputs, std::int64_t row) {
  const bool repeats = std::ranges::any_of(inputs, &BlockInput::repeats_a_row);
  return repeats && row <= kBlock ? kBlock / row * row : kBlock;
}

// The results are all laid out alike.
void run(const BlockProgram& program, at::TensorList inputs, at::TensorList results) {
  constexpr std::int64_t kWorthAThread = 32768;  // elements of one step, as ATen counts
  std::vector<at::Tensor> operands(inputs.begin(), inputs.end());
  operands.push_back(results[0]);
  const auto dimensions = dimensions_of(results[0].sizes(), operands);
  std::vector<BlockInput> read;
  for (std::size_t i = 0; i < inputs.size(); ++i) read.emplace_back(inputs[i], dimensions, i);
  std::vector<float*> written;
  for (const at::Tensor& result : results) written.push_back(result.mutable_data_ptr<float>());

  const std::int64_t total = results[0].numel(), block = block_of(read, dimensions.back().size);
  const std::int64_t blocks = (total + block - 1) / block;
  const auto grain = kWorthAThread / static_cast<std::int64_t>(program.steps()) / block + 1;
  at::parallel_for(0, blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> room(read.size() * kBlock);
    std::vector<const float*> from(read.size());
    std::vector<float*> to(written.size());
    std::vector<std::size_t> changing;  // those to be looked for in every block
    for (std::size_t i = 0; i < read.size(); ++i) {
      from[i] = read[i].block(begin * block, std::min(block, total - begin * block), &room[i * kBlock]);
      if (!read[i].is_the_same_in_blocks_of(block)) changing.push_back(i);
    }
    for (std::int64_t first = begin * block; first < std::min(end * block, total); first += block) {
      const std::int64_t count = std::min(block, total - first);
      for (const std::size_t i : changing) from[i] = read[i].block(first, count, &room[i * kBlock]);
      for (std::size_t r = 0; r < to.size(); ++r) to[r] = written[r] + first;
      program.run(from, to, count);
    }
  });
}

std::vector<at::Tensor> pointwise_blocks(at::TensorList inputs, std::string_view text) {
  const auto work = known(text);
  if (!work->program || inputs.size() != work->expression.inputs ||
      !std::ranges::all_of(inputs, is_float_on_host)) {
    return evaluate(work->expression, inputs);
  }
  const auto sizes = broadcast_sizes(inputs);
  if (!have_all_results(*work->program, inputs, sizes)) return evaluate(work->expression, inputs);
  std::vector<at::Tensor> results;
  for (std::size_t r = 0; r < work->expression.results.size(); ++r) {
    results.push_back(new_result(inputs, sizes));
  }
  if (results[0].numel() > 0) run(*work->program, inputs, results);
  return results;
}

TORCH_LIBRARY_IMPL(nimble, CPU, library) { library.impl("pointwise_blocks", pointwise_blocks); }

}  // namespace
}  // namespace nimble::kernels
