#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nimble/core/schedule.h"
#include "nimble/torch/program.h"
#include "nimble/torch/rewrites/rewrite.h"

namespace nimble {

// Says what the program does, to what and by which kernels, the same in every process.
std::string name_of(const Program& program);

// How long replays of one program took in earlier processes. `known` may be absent: then nothing is known.
class KnownReplays {
 public:
  KnownReplays(std::shared_ptr<KnownTimes> known, const Program& program);

  // On one stream, the best of several, in turn with another program: milliseconds.
  std::optional<double> on_one_stream(const Program& beside) const;
  void add_on_one_stream(const Program& beside, double milliseconds);

  // By one schedule for each limit.
  struct Replay {
    std::size_t streams = 0;
    double milliseconds = 0;  // the median; 0 where that schedule is no candidate
  };
  // One for each of the limits; nothing unless all are known.
  std::optional<std::vector<Replay>> within(std::span<const StreamLimit> limits) const;
  void add(StreamLimit limit, const Replay& replay);

 private:
  std::string key(std::string_view what) const;

  std::shared_ptr<KnownTimes> known_;
  std::string program_;
};

}  // namespace nimble
