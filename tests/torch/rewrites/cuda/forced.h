#pragma once

#include "../rewritten.h"
#include "nimble/torch/rewrites/all.h"

namespace nimble {

struct Forced {
  Program program;
  std::vector<std::string> sites;  // of the rewrite that is tested
};

// `function`, recorded on the CPU and rewritten as a GPU's program would be: there our operators are made of
// ATen's, so that what a rewrite does to a program can be seen, and run, anywhere.
inline Forced forced(const Function& function, const Tensors& inputs, const Rewrite& tested,
                     const std::vector<const Rewrite*>& before = {}, const RewriteContext& context = {}) {
  Program program = record(inputs, function);
  Forced result;
  std::vector<const Rewrite*> all = {&kOutOfPlace, &kCommonSubexpressions};
  all.insert(all.end(), before.begin(), before.end());
  all.push_back(&tested);
  all.push_back(&kWeightsOnce);
  for (const Rewrite* rewrite : all) {
    Rewritten rewritten = rewrite->apply(program, context);
    if (rewrite == &tested) result.sites = rewritten.sites;
    if (rewritten.sites.empty()) continue;
    check_program(rewritten.program, program, rewrite->name);
    Program recorded = record_anew(rewritten.program, inputs);
    check_program(recorded, program, rewrite->name);
    program = std::move(recorded);
  }
  result.program = std::move(program);
  return result;
}

// What the rewritten program gives, against the function itself, on inputs that it was not recorded with.
inline void expect_same(const Program& program, const Function& function, const Tensors& inputs,
                        double tolerance = 1e-4) {
  Tensors fresh;
  for (const at::Tensor& tensor : inputs) {
    fresh.push_back(tensor.is_floating_point() ? at::randn_like(tensor) : tensor.clone());
  }
  const Tensors expected = function(fresh), given = run(program, fresh);
  ASSERT_EQ(given.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(given[i].strides(), expected[i].strides());
    EXPECT_TRUE(at::allclose(given[i], expected[i], tolerance, tolerance))
        << (given[i] - expected[i]).abs().max();
  }
}

}  // namespace nimble
