#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nimble/backend/executable.h"
#include "nimble/engine/options.h"

namespace nimble {

// A schedule of a program that may be the one to keep.
struct Candidate {
  std::unique_ptr<Executable> executable = nullptr;
  std::size_t streams = 0, syncs = 0;
  std::size_t threads_per_stream = 0;  // CPU only
  std::vector<double> times = {};      // milliseconds
  std::string rejected = {};           // why it is none after all

  double median() const;
};

// Plans and binds schedules of one program. What it is made of must outlive it.
class CandidateMaker {
 public:
  CandidateMaker(const std::shared_ptr<const Program>& program, std::span<const at::Tensor> inputs,
                 const CompileOptions& options, Backend& backend);

  const TaskGraph& graph() const { return graph_; }
  const MemoryDemand& memory() const { return memory_; }

  // Schedules for few streams are better when it is known how long each task takes.
  void know_costs(std::span<const Nanoseconds> costs);

  Schedule plan(StreamLimit limit) const;  // verified

  Candidate bind(Schedule schedule, const Executable* same_program = nullptr,
                 const Executable* memory_of = nullptr) const;

  // The one to keep. What the program leaves outside, which until now lay where the recording left it, moves
  // into planned memory: a gradient shares it with what is gone before that gradient is made.
  Candidate bind_for_good(Schedule schedule, const Executable* same_program) const;

  // One for each schedule. They are to be replayed one after the other, so where they take much memory all
  // lie in that of the largest. `why_not` says of each why it is rejected, or nothing; so is one that finds
  // no memory.
  std::vector<Candidate> bind_all(std::vector<Schedule> schedules, const Executable& same_program,
                                  const std::function<std::string(Candidate&)>& why_not) const;

 private:
  Candidate bind(Schedule schedule, const MemoryDemand& memory, const Executable* same_program,
                 const Executable* memory_of) const;

  const std::shared_ptr<const Program>& program_;
  std::span<const at::Tensor> inputs_;
  const CompileOptions& options_;
  Backend& backend_;
  MemoryDemand memory_;
  TaskGraph graph_;
};

}  // namespace nimble
