#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "nimble/kernels/cpu/block_functions.h"
#include "nimble/kernels/expression.h"

namespace nimble::kernels {

// Whether there is a loop for this call, of floats alone.
bool has_block_function(const Step& step);

// An expression over floats as loops over blocks that stay in the nearest cache: each step goes over a block,
// and then the next step does, before the next block is looked at. What is in between never goes to memory.
class BlockProgram {
 public:
  static constexpr std::int64_t kBlock = 1024;  // elements

  // Of one whose results are each what another step makes, as rewrites make them. None of another, where a
  // step has no loop, or where too much is needed at once.
  static std::optional<BlockProgram> from(const Expression& expression);

  std::size_t steps() const { return instructions_.size(); }

  // By result: which inputs it is made of.
  const std::vector<std::vector<std::size_t>>& made_of() const { return made_of_; }

  // For the `count` elements of a block, at most kBlock: where the inputs are, and where the results go.
  void run(std::span<const float* const> inputs, std::span<float* const> results, std::int64_t count) const;

 private:
  static constexpr std::size_t kMostOperands = 4, kMostBlocks = 24;

  // Where an operand of an instruction is found.
  struct Place {
    enum class Kind : std::uint8_t { kInput, kNumber, kBlock, kResult } kind;
    std::uint32_t index;
  };
  struct Instruction {
    BlockFunction run;
    std::uint32_t operands;
    std::array<Place, kMostOperands> in;
    Place out;
  };

  BlockProgram() = default;
  Place number(double value);

  std::vector<Instruction> instructions_;
  std::vector<float> numbers_;  // a block of each
  std::vector<std::vector<std::size_t>> made_of_;
};

}  // namespace nimble::kernels
