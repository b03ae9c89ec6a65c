#include "nimble/torch/split.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "nimble/torch/record_error.h"

namespace nimble {
namespace {

// By buffer: whether more than one part looks at it.
std::vector<bool> crossing_buffers(const Program& program) {
  std::vector<std::optional<std::size_t>> seen_in(program.buffers.size());
  std::vector<bool> crosses(program.buffers.size());
  const auto see = [&](BufferId id, std::size_t part) {
    auto& first = seen_in[id.index()];
    if (!first) first = part;
    if (*first != part) crosses[id.index()] = true;
  };
  for (const Task& task : program.tasks) {
    for (const TensorRef& ref : task.reads) see(ref.buffer, task.part);
    for (const TensorRef& ref : task.writes) see(ref.buffer, task.part);
  }
  for (const Output& output : program.outputs) see(output.ref.buffer, output.part);
  return crosses;
}

void give_memory(Buffer& buffer) {
  const c10::InferenceMode ordinary(false);
  buffer.kind = BufferKind::kEscaped;
  buffer.outside =
      at::empty({static_cast<std::int64_t>(buffer.bytes)}, at::TensorOptions(buffer.device).dtype(at::kByte));
  buffer.address = buffer.outside.mutable_data_ptr();
}

// Where a generator was when a part began, by the counting of the whole program.
std::size_t position_at_beginning(const Program& whole, std::size_t part, const at::Generator& generator) {
  if (part == 0) return 0;
  for (const Draw& at_cut : whole.generators_at_cuts[part - 1]) {
    if (at_cut.generator == generator) return at_cut.position;
  }
  return 0;
}

// A part counts draws from where the parts before it left the generator.
void number_draws(const Program& whole, Program& part, std::size_t index) {
  struct Draws {
    std::size_t before = 0, here = 0;
  };
  std::unordered_map<const c10::GeneratorImpl*, Draws> draws;
  for (const Task& task : whole.tasks) {
    if (!task.draw) continue;
    Draws& drawn = draws[task.draw->generator.unsafeGetGeneratorImpl()];
    if (task.part < index) ++drawn.before;
    if (task.part == index) ++drawn.here;
  }
  const auto renumber = [&](Draw& draw) {
    const std::size_t before = draws.at(draw.generator.unsafeGetGeneratorImpl()).before;
    if (draw.position == position_at_beginning(whole, index, draw.generator)) {
      draw.position = 0;
      return;
    }
    if (draw.position <= before) {
      throw RecordError(
          "[nimble::record] a random generator that is set back across an optimizer's step, or from the "
          "backward to the forward pass of a compiled module, cannot be replayed. Compile the whole training "
          "step, with an optimizer that is fused=True or capturable=True");
    }
    draw.position -= before;
  };
  for (Task& task : part.tasks) {
    if (task.draw) renumber(*task.draw);
  }
  part.generators.clear();
  for (Draw end : whole.generators) {
    const Draws& drawn = draws.at(end.generator.unsafeGetGeneratorImpl());
    if (drawn.here == 0) continue;
    if (index + 1 < whole.parts) end.position = position_at_beginning(whole, index + 1, end.generator);
    renumber(end);
    part.generators.push_back(std::move(end));
  }
}

// Those of one part. What is the very tensor that an output of another part is becomes one of its own here.
std::vector<Output> outputs_of(const Program& whole, std::size_t part) {
  std::vector<Output> outputs;
  std::vector<std::optional<std::size_t>> place(whole.outputs.size());  // in this part
  for (std::size_t i = 0; i < whole.outputs.size(); ++i) {
    Output output = whole.outputs[i];
    if (output.part != part) continue;
    place[i] = outputs.size();
    if (output.same_as_output) output.same_as_output = place[*output.same_as_output];
    output.part = 0;
    outputs.push_back(std::move(output));
  }
  return outputs;
}

}  // namespace

std::vector<Program> split_into_parts(const Program& program) {
  Program shared = program;
  const std::vector<bool> crosses = crossing_buffers(program);
  for (std::size_t b = 0; b < crosses.size(); ++b) {
    Buffer& buffer = shared.buffers[b];
    if (crosses[b] && buffer.kind == BufferKind::kInternal && buffer.bytes > 0) give_memory(buffer);
  }
  std::vector<Program> parts;
  for (std::size_t index = 0; index < program.parts; ++index) {
    Program part = shared;
    part.parts = 1;
    std::erase_if(part.tasks, [&](const Task& task) { return task.part != index; });
    for (Task& task : part.tasks) task.part = 0;
    part.outputs = outputs_of(program, index);
    for (Buffer& buffer : part.buffers) buffer.returned = false;
    for (const Output& output : part.outputs) part.buffers[output.ref.buffer.index()].returned = true;
    number_draws(program, part, index);
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace nimble
