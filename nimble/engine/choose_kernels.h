#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nimble/core/task_graph.h"
#include "nimble/torch/program.h"
#include "nimble/torch/rewrites/rewrite.h"

namespace nimble {

// Which kernels are best where they run: beside one another, in the schedule of the whole. Nothing here binds
// or times anything; see kernels_in_schedule.h for that.

// Tasks that look alike, all done by another kernel.
struct Exchange {
  std::vector<TaskId> tasks;
  std::vector<Task> by;  // what takes the place of each
  std::string name;      // says what is exchanged for what, the same in every process
};
Program exchanged(Program program, const Exchange& exchange);

using OtherKernels = std::function<std::vector<Task>(const Task&)>;

// The exchanges worth trying, in that order: those of the heaviest kinds of tasks among which some lie on or
// near the longest path through `order`, a graph with measured costs. At most `kinds` kinds, the one that
// takes most time there first.
std::vector<Exchange> exchanges_to_try(const Program& program, const TaskGraph& order,
                                       const OtherKernels& other_kernels, std::size_t kinds);

// How long a replay takes before an exchange and after it: medians, taken in turn. Zeros stand for an
// exchange that cannot be made: there is no such kernel, or it needs other memory.
struct ReplayTimes {
  double before = 0, after = 0;  // milliseconds
  bool possible() const { return before > 0; }
  bool faster() const;  // by more than the noise
};

// What became of the exchanges of one program in earlier processes. `known` may be absent.
class KnownExchanges {
 public:
  // Times hold for schedules of the same tasks, by the same kernels, with as many streams. (The schedule
  // itself is another in every process, since it is planned by task costs that are measured.)
  KnownExchanges(std::shared_ptr<KnownTimes> known, const Program& program, std::size_t streams);

  // An exchange was made; the next ones are on top of it.
  void follow(const Program& program);

  std::optional<ReplayTimes> find(const Exchange& exchange) const;
  void add(const Exchange& exchange, const ReplayTimes& times);

 private:
  std::string key(const Exchange& exchange, const char* when) const;

  std::shared_ptr<KnownTimes> known_;
  std::size_t streams_;
  std::string program_;
};

// An exchange that was timed, now or in an earlier process.
struct TriedKernel {
  std::string like;      // one of the tasks: "matrix_convolution(1x64x35x35, 96x64x3x3)"
  std::string from, to;  // kernels
  std::size_t tasks = 0;
  ReplayTimes times;
  bool kept = false;
};

struct ChosenKernels {
  std::shared_ptr<const Program> program;
  std::vector<TriedKernel> tried = {};
};

// How exchanges are judged.
struct KernelJudge {
  // Times the best program so far against a rival; once more, with more replays, before the rival is taken.
  // What it throws is no candidate this time.
  std::function<ReplayTimes(const std::shared_ptr<const Program>& best,
                            const std::shared_ptr<const Program>& rival, const Exchange& exchange,
                            bool again)>
      time;
  std::function<bool()> time_is_left;  // what is known already needs none
};

// Makes one exchange after the other, each on top of those that were kept, and keeps it if the whole is
// clearly faster with it.
ChosenKernels choose_kernels(const std::shared_ptr<const Program>& program,
                             std::span<const Exchange> exchanges, KnownExchanges& known,
                             const KernelJudge& judge);

}  // namespace nimble
