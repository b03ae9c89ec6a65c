#include "nimble/kernels/cpu/block_program.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "nimble/kernels/element_source.h"

namespace nimble::kernels {
namespace {

const NamedBlockFunction* best_block_functions() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("x86-64-v4")) return avx512::block_functions;
  if (__builtin_cpu_supports("x86-64-v3")) return avx2::block_functions;
#endif
  return baseline::block_functions;
}

BlockFunction find_block_function(std::string_view name) {
  static const auto table = [] {
    std::unordered_map<std::string_view, BlockFunction> known;
    for (const auto* function = best_block_functions(); function->name; ++function) {
      known.emplace(function->name, function->run);
    }
    return known;
  }();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

bool is_one(const Argument& argument) {
  const auto* number = std::get_if<c10::IValue>(&argument);
  return number && number->toScalar().toDouble() == 1;
}

// What the blocks have a loop for: a sum with the usual factor of 1 is a plain one.
FunctionCall block_call(const Step& step) {
  FunctionCall call = function_call(step);
  const bool is_sum = call.function == "add" || call.function == "sub";
  if (is_sum && is_one(call.arguments[2])) {
    return {call.function == "add" ? "plus" : "minus", {call.arguments[0], call.arguments[1]}};
  }
  return call;
}

// By step: which one is the last to read it.
std::vector<std::size_t> last_readers(const std::vector<FunctionCall>& calls) {
  std::vector<std::size_t> last(calls.size(), 0);
  for (std::size_t s = 0; s < calls.size(); ++s) {
    for (const Argument& argument : calls[s].arguments) {
      const auto* value = std::get_if<Value>(&argument);
      if (value && value->kind == Value::Kind::kStep) last[value->index] = s;
    }
  }
  return last;
}

// By result: the numbers of the inputs that it depends on.
std::vector<std::vector<std::size_t>> inputs_of_results(const Expression& expression) {
  std::vector<std::set<std::size_t>> of_step;
  for (const Step& step : expression.steps) {
    auto& inputs = of_step.emplace_back();
    for (const Argument& argument : step.arguments) {
      const auto* value = std::get_if<Value>(&argument);
      if (!value) continue;
      if (value->kind == Value::Kind::kInput) {
        inputs.insert(value->index);
      } else {
        const std::set<std::size_t> earlier = of_step[value->index];
        inputs.insert(earlier.begin(), earlier.end());
      }
    }
  }
  std::vector<std::vector<std::size_t>> all;
  for (const Value& result : expression.results) {
    all.emplace_back(of_step[result.index].begin(), of_step[result.index].end());
  }
  return all;
}

}  // namespace

bool has_block_function(const Step& step) {
  // Casts have to do with other types.
  return has_kernel(step) && step.function != "_to_copy" && find_block_function(block_call(step).function);
}

BlockProgram::Place BlockProgram::number(double value) {
  const auto index = static_cast<std::uint32_t>(numbers_.size() / kBlock);
  numbers_.insert(numbers_.end(), kBlock, static_cast<float>(value));
  return {Place::Kind::kNumber, index};
}

std::optional<BlockProgram> BlockProgram::from(const Expression& expression) {
  const auto& results = expression.results;
  const bool gives_steps = std::ranges::all_of(results, [&](const Value& result) {
    return result.kind == Value::Kind::kStep && std::ranges::count(results, result) == 1;
  });
  if (!gives_steps || results.empty() || expression.inputs == 0) return {};
  std::vector<FunctionCall> calls;
  for (const Step& step : expression.steps) {
    if (!has_block_function(step)) return {};
    calls.push_back(block_call(step));
  }
  const auto last_reader = last_readers(calls);
  BlockProgram program;
  program.made_of_ = inputs_of_results(expression);
  std::vector<Place> made(calls.size());
  std::vector<std::uint32_t> unused(kMostBlocks);
  for (std::uint32_t b = 0; b < kMostBlocks; ++b) unused[b] = kMostBlocks - 1 - b;

  for (std::size_t s = 0; s < calls.size(); ++s) {
    const auto result = std::ranges::find(results, step(s));
    if (result != results.end()) {
      made[s] = {Place::Kind::kResult, static_cast<std::uint32_t>(result - results.begin())};
    } else if (!unused.empty()) {
      made[s] = {Place::Kind::kBlock, unused.back()};
      unused.pop_back();
    } else {
      return {};
    }
    Instruction instruction{.run = find_block_function(calls[s].function),
                            .operands = static_cast<std::uint32_t>(calls[s].arguments.size()),
                            .in = {},
                            .out = made[s]};
    for (std::size_t a = 0; a < calls[s].arguments.size(); ++a) {
      const Argument& argument = calls[s].arguments[a];
      const auto* value = std::get_if<Value>(&argument);
      if (!value) {
        instruction.in[a] = program.number(std::get<c10::IValue>(argument).toScalar().toDouble());
      } else if (value->kind == Value::Kind::kInput) {
        instruction.in[a] = {Place::Kind::kInput, static_cast<std::uint32_t>(value->index)};
      } else {
        instruction.in[a] = made[value->index];
      }
    }
    program.instructions_.push_back(instruction);
    // Not before: a loop does not write to what it reads.
    for (std::size_t earlier = 0; earlier < s; ++earlier) {
      if (last_reader[earlier] == s && made[earlier].kind == Place::Kind::kBlock) {
        unused.push_back(made[earlier].index);
      }
    }
  }
  return program;
}

void BlockProgram::run(std::span<const float* const> inputs, std::span<float* const> results,
                       std::int64_t count) const {
  alignas(64) float blocks[kMostBlocks * kBlock];
  const auto read = [&](const Place& place) -> const float* {
    switch (place.kind) {
      case Place::Kind::kInput:
        return inputs[place.index];
      case Place::Kind::kNumber:
        return numbers_.data() + place.index * kBlock;
      case Place::Kind::kBlock:
        return blocks + place.index * kBlock;
      case Place::Kind::kResult:
        return results[place.index];
    }
    __builtin_unreachable();
  };
  for (const Instruction& instruction : instructions_) {
    std::array<const float*, kMostOperands> in;
    for (std::uint32_t a = 0; a < instruction.operands; ++a) in[a] = read(instruction.in[a]);
    instruction.run(const_cast<float*>(read(instruction.out)), in.data(), count);
  }
}

}  // namespace nimble::kernels
