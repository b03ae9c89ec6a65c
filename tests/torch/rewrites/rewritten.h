#pragma once

#include <gtest/gtest.h>

#include "../recorded.h"
#include "nimble/torch/derivation.h"
#include "nimble/torch/interpreter.h"
#include "nimble/torch/rewrites/apply.h"
#include "nimble/torch/rewrites/check_program.h"
#include "nimble/torch/rewrites/record_anew.h"
#include "nimble/torch/rewrites/registry.h"

namespace nimble {

using Function = std::function<Tensors(const Tensors&)>;

inline AppliedRewrites apply_named(const Program& program, const Tensors& inputs,
                                   const std::vector<std::string>& names, bool trains = false) {
  AppliedRewrites applied = apply_rewrites(program, rewrites_named(names), inputs, {.trains = trains});
  for (const RewriteReport& report : applied.reports) EXPECT_EQ(report.dropped, "") << report.name;
  return applied;
}

// `function`, recorded on `inputs` and rewritten.
inline Program rewritten(const Function& function, const Tensors& inputs,
                         const std::vector<std::string>& names) {
  return apply_named(record(inputs, function), inputs, names).program;
}

// How often a rewrite fired.
inline std::size_t fired(const Function& function, const Tensors& inputs, const std::string& name,
                         bool trains = false) {
  const AppliedRewrites applied = apply_named(record(inputs, function), inputs, {name}, trains);
  for (const RewriteReport& report : applied.reports) {
    if (report.name == name) return report.sites.size();
  }
  return 0;
}

inline Tensors run(const Program& program, const Tensors& inputs) {
  const at::NoGradGuard no_grad;
  Interpreter interpreter(program, inputs);
  interpreter.run();
  return std::move(interpreter).outputs();
}

// One line for each task: operators and buffers, without shapes and numbers.
//   %3 = relu(%1)
inline std::string drawn(const Program& program) {
  static constexpr const char* kPrefix[] = {"input", "extern", "const", "%", "scratch", "escaped", "derived"};
  std::map<BufferId, std::string> names;
  std::map<std::string, int> counts;
  const auto name = [&](const TensorRef& ref) {
    const auto [known, first] = names.try_emplace(ref.buffer);
    if (first) {
      const std::string prefix = kPrefix[static_cast<int>(program.buffer(ref.buffer).kind)];
      known->second = prefix + std::to_string(counts[prefix]++);
    }
    return known->second;
  };
  const auto list = [&](const std::vector<Operand>& operands) {
    std::string text;
    for (const Operand& operand : operands) {
      for_each_ref(operand, [&](const TensorRef& ref) { text += (text.empty() ? "" : ", ") + name(ref); });
    }
    return text;
  };
  std::string text = "\n";
  for (const TensorRef& input : program.inputs) name(input);
  for (const Task& task : program.tasks) {
    std::string op = task.op.operator_name().name;
    if (op.starts_with("aten::")) op.erase(0, 6);
    const std::string arguments = list(task.arguments);
    text += list(task.results) + " = " + op + '(' + arguments + ")\n";
  }
  text += "return";
  for (const Output& output : program.outputs) text += ' ' + name(output.ref);
  return text + '\n';
}

class RewriteTest : public ::testing::Test {
 protected:
  RewriteTest() { torch::manual_seed(0); }  // before the tensors of fixtures are drawn
  torch::NoGradGuard no_grad_;
};

}  // namespace nimble
