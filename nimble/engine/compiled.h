#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nimble/engine/entry.h"
#include "nimble/engine/errors.h"
#include "nimble/engine/options.h"

namespace nimble {

// What a compiled function has done so far.
struct Stats {
  std::uint64_t recordings = 0;   // runs that were recorded
  std::uint64_t validations = 0;  // calls run both ways and compared
  std::uint64_t replays = 0;      // calls answered by a replay alone
  std::uint64_t eager_calls = 0;  // calls answered by the user's function without recording
  std::uint64_t refusals = 0;     // signatures that cannot be replayed
  std::uint64_t evictions = 0;    // signatures dropped from the cache
  std::uint64_t cached = 0;       // signatures in the cache
  // Of the schedule that was used last.
  std::uint64_t tasks = 0, streams = 0, syncs = 0, degree_of_concurrency = 0;
  std::uint64_t arena_bytes = 0, allocated_bytes = 0, unplanned_allocations = 0;
  std::uint64_t static_bytes = 0, workspace_bytes = 0;  // CUDA: inputs and results, cuBLAS
  double record_milliseconds = 0, plan_milliseconds = 0, tune_milliseconds = 0;
};

struct CallResult {
  Tensors outputs;
  bool replayed = false;           // false: `outputs` are what the user's function returned just now
  std::shared_ptr<HostNote> note;  // of the recording that was replayed
};

// What was there before a call, to go back to it.
struct StateBefore {
  OutsideState state;
  Gradients gradients;

  void restore() const;
};

// A function that is recorded on its first call, checked on the next and replayed from then on: one for each
// signature, in a bounded cache. Any number of threads may call.
class Compiled {
 public:
  explicit Compiled(CompileOptions options);
  ~Compiled();

  // Answers one call. `variant` numbers the structure and values of the arguments that are no tensors.
  CallResult call(const Tensors& inputs, std::int64_t variant, Host& host);

  // The first half of `call`: the entry that is ready to replay this call, or null. Then `replay` answers it
  // without needing a host, so a caller may let go of what it holds (Python's lock) in between.
  std::shared_ptr<Entry> ready(const Tensors& inputs, std::int64_t variant);
  // Not `replayed` where the entry is no longer ready: another thread has found it wrong meanwhile.
  CallResult replay(const std::shared_ptr<Entry>& entry, const Tensors& inputs);

  // Records and checks this signature now, throws where a call would fall back, and puts every outside tensor
  // and generator that it touched back.
  void prepare(const Tensors& inputs, std::int64_t variant, Host& host);

  // Forgets all recordings: for changes that no guard can see.
  void refresh();

  const CompileOptions& options() const { return options_; }
  Stats stats() const;
  std::string explain() const;

  // What docs/report.md describes, as JSON: every signature and, if the one of `inputs` is ready, its
  // schedule and how long everything takes. For that it is replayed some dozens of times; all that this
  // changes is put back.
  std::string report(const Tensors& inputs, std::int64_t variant);

  // All that a call which is ready changes outside, as it is now, so that the user's function may be run and
  // undone. None if the host takes part in the replay: what it does cannot be undone.
  std::optional<StateBefore> state_before(const Tensors& inputs, std::int64_t variant);

  // The signature used last: its program, one line for each task, and its task graph as JSON for nimble-plan.
  std::string program() const;
  std::string task_graph() const;

 private:
  enum class Mode { kCall, kPrepare };

  // The entry of this signature that holds here and now; one that does no longer is dropped.
  std::shared_ptr<Entry> find(const Tensors& inputs, std::int64_t variant);
  void drop(const std::shared_ptr<Entry>& entry);
  void note_dropped(const Entry& entry, std::string why);  // under the lock
  bool gives_up_recording(const Tensors& inputs, std::int64_t variant, Host& host);
  void insert(std::shared_ptr<Entry> entry, Host& host);
  void replace(const std::shared_ptr<Entry>& entry, std::shared_ptr<Entry> by, Host& host);
  Tensors leaves() const;
  Recording watch(Entry& entry, const Tensors& inputs, Host& host, Mode mode);
  Tensors first_call(const Tensors& inputs, std::int64_t variant, Host& host, Mode mode);
  void refuse_if_strict(const Tensors& inputs, std::int64_t variant) const;
  Tensors advance(const std::shared_ptr<Entry>& entry, const Tensors& inputs, Host& host, Mode mode);
  Tensors settle(const std::shared_ptr<Entry>& entry, const Tensors& inputs, Host& host, Mode mode);
  Tensors record_again(const std::shared_ptr<Entry>& entry, const Tensors& inputs, Host& host, Mode mode);
  Tensors check(const std::shared_ptr<Entry>& entry, const Tensors& inputs, Host& host, Mode mode);
  void begin(const std::shared_ptr<Entry>& entry, Recording&& recording, Host& host, Mode mode,
             const std::shared_ptr<Entry>& instead_of = nullptr);
  void give_up(Entry& entry, const std::string& why, Host& host, Mode mode, bool is_mismatch);

  CompileOptions options_;
  mutable std::mutex mutex_;                     // guards the cache and the counters
  std::vector<std::shared_ptr<Entry>> entries_;  // most recently used first
  std::shared_ptr<Entry> last_used_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> leaves_;  // parameters seen so far
  // A signature whose entries did not hold any more.
  struct Dropped {
    Signature signature;
    bool was_planned;
    std::size_t in_a_row;  // how many, since one of them answered a call
    std::string why;
  };
  std::vector<Dropped> dropped_;  // most recently dropped first
  std::string recorded_for_;      // the signature recorded last, empty if there was none
  std::set<std::string> warned_;
  Stats stats_;
  std::mutex preparing_;  // one recording or check at a time
};

}  // namespace nimble
