#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace nimble {

// Which rewrites are applied unless something else is asked for.
inline constexpr const char* kDefaultRewrites = "none";

// How a function is compiled. Every field has a default that is right for most uses; Python takes the same
// names as keywords and, in capitals behind NIMBLE_, from the environment.
struct CompileOptions {
  // Errors instead of fallbacks: what cannot be replayed throws RecordError, a new signature after the first
  // throws GuardError, a mismatch throws ValidationError.
  bool strict = false;

  // Results lie in memory that the next call overwrites. Saves a copy or an allocation for each result.
  bool alias_outputs = false;

  // After how many replays one call is again run both ways and compared. 0: never again after the first
  // check.
  std::size_t validate_every = 0;

  // How many signatures are kept; the least recently used goes first.
  std::size_t cache_size = 8;

  // How many streams to use. Empty: as many as measure fastest; 0: as many as maximum concurrency takes.
  std::optional<std::size_t> streams = {};

  // Buffers whose uses never overlap share bytes. Off: each has its own, to see what sharing saves.
  bool share_memory = true;

  // CUDA: a replay is one graph, launched at once. Off: the same schedule stream by stream, to look at it
  // with a debugger, or where a driver makes no graph of it.
  bool graph = true;

  // How long measuring may take when a schedule is chosen, and kernels inside it.
  double tune_seconds = 0.5;

  // Names of rewrites (see rewrites/registry.h), "default" for all or "none". Without any, results are
  // bit-equal to eager's.
  std::vector<std::string> rewrites = {kDefaultRewrites};

  // How far results of a rewritten program may be from eager's, relative to the largest value of a result.
  // Empty: as the types of the results and the math modes ask for, see tolerance.h; in training not at all.
  std::optional<double> tolerance = {};
};

}  // namespace nimble
