#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "nimble/backend/executable.h"
#include "tests/conformance/programs.h"

namespace nimble::testing {

// A subject, recorded once; its state outside is then as before the recording.
std::shared_ptr<const Program> record(const Subject& subject, c10::Device device);

// Planned, verified and bound. `streams` 0: as many as maximum concurrency takes.
std::unique_ptr<Executable> prepare(const std::shared_ptr<const Program>& program, std::size_t streams,
                                    const BindOptions& options = {});

// Runs the subject `times` times eagerly and as often by replay, both from the same state and seed and on the
// same inputs, and compares every bit of the results, of the inputs afterwards and of the outside tensors.
::testing::AssertionResult replays_like_eager(const Subject& subject, Executable& executable, int times = 3);

// From now on kernels give the same bits at every run, on one thread.
void make_kernels_deterministic();

// Copies of tensors, and writing them back.
Tensors copies(const Tensors& tensors);
void write_back(const Tensors& tensors, const Tensors& saved);

}  // namespace nimble::testing
