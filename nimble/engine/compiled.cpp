#include "nimble/engine/compiled.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include "nimble/core/json.h"
#include "nimble/engine/same_program.h"
#include "nimble/torch/outside_state.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

thread_local int recording_depth = 0;

class RecordingScope {
 public:
  RecordingScope() { ++recording_depth; }
  ~RecordingScope() { --recording_depth; }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;
};

// Outside tensors are read where they lay when they were recorded; one that has been given other memory since
// (`p.data = …`, `.half()`) makes the record stale.
bool outside_unmoved(const Program& program) {
  for (const Buffer& buffer : program.buffers) {
    if (buffer.outside.defined() && buffer.outside.storage().data() != buffer.address) return false;
  }
  return true;
}

// The first result in which a replay differs from eager, bit by bit; empty if none does.
std::string mismatch(const Tensors& replayed, const Tensors& eager) {
  if (replayed.size() != eager.size()) return "another number of results the next time";
  for (std::size_t i = 0; i < eager.size(); ++i) {
    if (!same_bits(replayed[i], eager[i])) {
      return "result " + std::to_string(i) + " of the replay differs from eager's";
    }
  }
  return "";
}

}  // namespace

bool is_recording() { return recording_depth > 0; }

struct Recording {
  Tensors outputs;
  std::shared_ptr<const Program> program;  // null if refused
  std::unique_ptr<OutsideGuard> guard;
  std::shared_ptr<HostNote> note;
  std::string refusal;
  OutsideState undo;        // what to put back if this was no real call
  bool wants_grad = false;  // the results are part of an autograd graph
  double milliseconds = 0;
};

class Entry {
 public:
  enum class State {
    kRecorded,    // the next call is run both ways
    kMismatched,  // they differed: the next call is recorded again, to find out why
    kReady,
    kEager,
  };

  explicit Entry(Signature signature) : signature(std::move(signature)) {}

  void adopt(Recording&& recording) {
    state = State::kRecorded;
    program = std::move(recording.program);
    guard = std::move(recording.guard);
    note = std::move(recording.note);
    record_milliseconds = recording.milliseconds;
    for (const Buffer& buffer : program->buffers) {
      if (buffer.kind == BufferKind::kExternal) {
        outside_storages.insert(buffer.outside.storage().unsafeGetStorageImpl());
      }
    }
  }

  bool holds() const { return (!program || outside_unmoved(*program)) && (!guard || guard->holds()); }

  // An argument that lies in the memory of an outside tensor was not there when the program was recorded.
  bool separates(std::span<const at::Tensor> inputs) const {
    if (!program) return true;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool bound_outside = program->buffer(program->inputs[i].buffer).kind == BufferKind::kExternal;
      if (bound_outside != outside_storages.contains(inputs[i].storage().unsafeGetStorageImpl()))
        return false;
    }
    return true;
  }

  const Signature signature;
  std::atomic<State> state = State::kRecorded;
  // Set before the entry is shared and never changed after.
  std::shared_ptr<const Program> program;
  std::unique_ptr<OutsideGuard> guard;
  std::shared_ptr<HostNote> note;
  std::set<const c10::StorageImpl*> outside_storages;
  Choice choice;       // changed under the lock of the cache
  std::string reason;  // why it runs eagerly; likewise
  std::mutex replaying;
  std::atomic<std::uint64_t> replays = 0;
  int recordings = 1;
  double record_milliseconds = 0;
};

Compiled::Compiled(CompileOptions options) : options_(std::move(options)) {}
Compiled::~Compiled() = default;

// Guards are asked, and entries let go of, without holding the lock: both may wait for Python's own lock,
// whose owner may be waiting for ours.
std::shared_ptr<Entry> Compiled::find(const Tensors& inputs, std::int64_t variant) {
  const Settings settings = Settings::here();
  std::shared_ptr<Entry> found;
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const std::shared_ptr<Entry>& entry) {
      return entry->signature.matches(inputs, variant, settings) && entry->separates(inputs);
    });
    if (it == entries_.end()) return nullptr;
    found = *it;
    std::rotate(entries_.begin(), it, it + 1);
  }
  if (found->holds()) return found;
  const std::lock_guard lock(mutex_);
  std::erase(entries_, found);
  return nullptr;
}

void Compiled::insert(std::shared_ptr<Entry> entry, Host& host) {
  std::vector<std::shared_ptr<Entry>> evicted;
  bool thrashes = false;
  {
    const std::lock_guard lock(mutex_);
    recorded_for_ = entry->signature.to_string();
    entries_.insert(entries_.begin(), std::move(entry));
    while (entries_.size() > std::max<std::size_t>(1, options_.cache_size)) {
      evicted.push_back(std::move(entries_.back()));
      entries_.pop_back();
      ++stats_.evictions;
      thrashes |= stats_.evictions == options_.cache_size;
    }
  }
  if (thrashes) {
    host.warn("[nimble::call] signatures are recorded and dropped again and again: more than cache_size=" +
              std::to_string(options_.cache_size) +
              " different shapes or settings are in use. Raise cache_size, or pad inputs to fewer shapes");
  }
}

std::shared_ptr<Entry> Compiled::ready(const Tensors& inputs, std::int64_t variant) {
  if (is_recording()) return nullptr;
  auto entry = find(inputs, variant);
  if (!entry || entry->state != Entry::State::kReady) return nullptr;
  if (options_.validate_every > 0 && entry->replays > 0 && entry->replays % options_.validate_every == 0)
    return nullptr;
  return entry;
}

CallResult Compiled::replay(Entry& entry, const Tensors& inputs) {
  Tensors outputs;
  {
    const std::lock_guard lock(entry.replaying);
    outputs = entry.choice.executable->replay(inputs);
    ++entry.replays;
  }
  if (entry.guard) entry.guard->put_back();
  const std::lock_guard counting(mutex_);
  ++stats_.replays;
  return {std::move(outputs), true, entry.note};
}

CallResult Compiled::call(const Tensors& inputs, std::int64_t variant, Host& host) {
  const auto eagerly = [&] {
    {
      const std::lock_guard lock(mutex_);
      ++stats_.eager_calls;
    }
    return CallResult{host.run(inputs), false, nullptr};
  };
  if (is_recording()) return {host.run(inputs), false, nullptr};
  if (const auto entry = ready(inputs, variant)) return replay(*entry, inputs);
  auto entry = find(inputs, variant);
  if (entry && entry->state == Entry::State::kEager) return eagerly();

  // Whoever prepares takes its time; others go on eagerly meanwhile.
  std::unique_lock preparing(preparing_, std::try_to_lock);
  if (!preparing) return eagerly();
  if (!entry) return {first_call(inputs, variant, host, Mode::kCall).second, false, nullptr};
  return {advance(entry, inputs, host, Mode::kCall), false, nullptr};
}

Tensors Compiled::advance(const std::shared_ptr<Entry>& entry, const Tensors& inputs, Host& host, Mode mode) {
  if (entry->state == Entry::State::kMismatched) return record_again(entry, inputs, host, mode);
  return check(entry, inputs, host, mode);
}

Recording Compiled::record(const Tensors& inputs, Host& host, Mode mode) {
  const auto start = Clock::now();
  const bool throws = options_.strict || mode == Mode::kPrepare;
  Recording recording;
  ProgramBuilder builder(inputs,
                         throws ? ProgramBuilder::OnRefusal::kThrow : ProgramBuilder::OnRefusal::kRemember,
                         host.outside());
  if (mode == Mode::kPrepare) builder.keep_before_change(&recording.undo);
  try {
    cpu_backend().watch_allocations();
    if (cuda_available()) cuda_backend().watch_allocations();
    // Autocast keeps casted weights for a while; a recording must see them made, and must not see them kept.
    at::autocast::clear_cache();
    {
      const RecordingScope scope;
      recording.outputs = host.record(inputs, builder);
    }
    at::autocast::clear_cache();
    for (const at::Tensor& output : recording.outputs) recording.wants_grad |= output.grad_fn() != nullptr;
    if (!builder.refusal() && !recording.wants_grad) {
      const auto escaped = builder.escaped(recording.outputs);
      const Tensors kept = escaped.empty() ? Tensors{} : host.kept(escaped);
      auto program = std::make_shared<Program>(builder.finish(recording.outputs, kept));
      if (!builder.refusal()) {
        backend_for(program->device()).check(*program);
        recording.guard = host.watch(*program);
        recording.note = host.note();
        recording.program = std::move(program);
      }
    }
  } catch (const RecordError& error) {
    if (throws) {
      recording.undo.restore();
      throw;
    }
    recording.refusal = error.what();
  } catch (...) {
    recording.undo.restore();
    throw;
  }
  if (builder.refusal()) recording.refusal = builder.refusal()->message();
  {
    const std::lock_guard lock(mutex_);
    ++stats_.recordings;
  }
  recording.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return recording;
}

void Compiled::give_up(Entry& entry, const std::string& why, Host& host, Mode mode, bool is_mismatch) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    entry.reason = why;
    entry.state = Entry::State::kEager;
    ++stats_.refusals;
    first = warned_.insert(why).second;
  }
  if (options_.strict || mode == Mode::kPrepare) {
    if (is_mismatch) throw ValidationError(why);
    throw RecordError(why);
  }
  if (first) host.warn(why + ". Running eagerly from now on");
}

std::pair<std::shared_ptr<Entry>, Tensors> Compiled::first_call(const Tensors& inputs, std::int64_t variant,
                                                                Host& host, Mode mode) {
  if (options_.strict && mode == Mode::kCall) {
    const std::lock_guard lock(mutex_);
    if (!recorded_for_.empty()) {
      throw GuardError(
          "[nimble::call] strict: called with " + Signature(inputs, variant).to_string() + ", prepared for " +
          recorded_for_ +
          " (or a module, parameter or setting changed since). Call prepare() with such arguments first, "
          "or compile without strict=True");
    }
  }
  auto entry = std::make_shared<Entry>(Signature(inputs, variant));
  Recording recording = record(inputs, host, mode);
  recording.undo.restore();
  if (recording.wants_grad) {
    entry->state = Entry::State::kEager;
    entry->reason = "its results require grad";
    host.log(
        "[nimble::call] the results require grad, so this call runs eagerly; use torch.no_grad() or "
        "torch.inference_mode() for inference");
    insert(entry, host);
    return {entry, std::move(recording.outputs)};
  }
  if (!recording.program) {
    insert(entry, host);
    give_up(*entry, recording.refusal, host, mode, false);
    return {entry, std::move(recording.outputs)};
  }
  Tensors outputs = std::move(recording.outputs);
  entry->adopt(std::move(recording));
  insert(entry, host);
  return {entry, std::move(outputs)};
}

// Runs one call both ways, on the same state, and leaves the state as the eager run does. The eager run is
// not watched: some of PyTorch's composite operators take another path while a dispatch mode is active.
Tensors Compiled::check(const std::shared_ptr<Entry>& entry, const Tensors& inputs, Host& host, Mode mode) {
  const std::lock_guard replaying(entry->replaying);
  const OutsideState before = OutsideState::save(*entry->program, inputs);
  Tensors replayed;
  OutsideState after_replay;
  std::string failure;
  try {
    if (!entry->choice.executable) {
      Choice choice = choose_schedule(entry->program, inputs, options_);
      before.restore();
      const std::lock_guard lock(mutex_);
      entry->choice = std::move(choice);
    }
    replayed = entry->choice.executable->replay(inputs);
    entry->choice.executable->wait();
    after_replay = before.save_again();
  } catch (const std::exception& error) {
    failure = std::string("[nimble::replay] ") + error.what();
  }
  // Results may lie in memory that the second run writes.
  for (at::Tensor& tensor : replayed) tensor = tensor.detach().clone();
  Tensors escaped, escaped_values;
  for (const auto& kept : entry->guard ? entry->guard->kept() : std::vector<OutsideGuard::Kept>{}) {
    escaped.push_back(kept.recorded);
    escaped_values.push_back(kept.recorded.detach().clone());
  }
  before.restore();

  Tensors outputs;
  {
    const RecordingScope nothing_inside_is_replayed;
    outputs = host.run(inputs);
  }
  const auto put_back = c10::make_scope_exit([&] {
    if (mode == Mode::kPrepare) before.restore();
  });
  {
    const std::lock_guard lock(mutex_);
    ++stats_.validations;
  }
  if (failure.empty()) failure = mismatch(replayed, outputs);
  if (const auto note = host.note(); failure.empty() && entry->note && !entry->note->same_as(*note)) {
    failure = "a result that is no tensor was something else the next time";
  }
  if (failure.empty()) {
    // Eager puts a new tensor where one escaped to, so its value counts, not its memory.
    if (const auto changed = after_replay.difference(before.save_again(), escaped)) {
      failure = "the replay left " + *changed + " in another state than eager does";
    }
    const auto now = entry->guard ? entry->guard->kept() : std::vector<OutsideGuard::Kept>{};
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (!now[i].now.defined() || !same_bits(now[i].now, escaped_values[i])) {
        failure = "an attribute that the function sets differs from eager's";
      }
    }
  }
  if (failure.empty()) {
    entry->state = Entry::State::kReady;
    ++entry->replays;
    const std::lock_guard lock(mutex_);
    last_used_ = entry;
  } else {
    {
      const std::lock_guard lock(mutex_);
      entry->reason = failure;
    }
    entry->state = Entry::State::kMismatched;
    host.log("[nimble::check] " + failure + "; recording once more");
  }
  return outputs;
}

// A replay differed from eager. If a second recording differs from the first, the function changed on the
// host in between: perhaps it set something up once, so the new recording gets its chance, but not for ever.
// If it does not differ, the replay itself cannot be trusted.
Tensors Compiled::record_again(const std::shared_ptr<Entry>& entry, const Tensors& inputs, Host& host,
                               Mode mode) {
  constexpr int kRecordings = 3;
  const std::lock_guard replaying(entry->replaying);
  Recording again = record(inputs, host, mode);
  again.undo.restore();
  Tensors outputs = std::move(again.outputs);
  if (!again.program) {
    give_up(*entry, again.wants_grad ? "its results require grad" : again.refusal, host, mode, false);
    return outputs;
  }
  auto difference = first_difference(*entry->program, *again.program);
  if (!difference && entry->note && !entry->note->same_as(*again.note)) difference = entry->reason;
  if (!difference) {
    give_up(*entry, "[nimble::check] " + entry->reason, host, mode, true);
  } else if (entry->recordings + 1 >= kRecordings) {
    give_up(*entry,
            "[nimble::check] the function does something else at each call: " + *difference +
                ". What changes on the host cannot be replayed; pass it in as a tensor",
            host, mode, true);
  } else {
    host.log("[nimble::check] recorded anew: " + *difference);
    auto next = std::make_shared<Entry>(entry->signature);
    next->recordings = entry->recordings + 1;
    next->adopt(std::move(again));
    {
      const std::lock_guard lock(mutex_);
      std::erase(entries_, entry);
    }
    insert(std::move(next), host);
  }
  return outputs;
}

void Compiled::prepare(const Tensors& inputs, std::int64_t variant, Host& host) {
  if (is_recording()) throw Error("[nimble::prepare] called while another function is being recorded");
  const std::lock_guard preparing(preparing_);
  auto entry = find(inputs, variant);
  if (!entry) entry = first_call(inputs, variant, host, Mode::kPrepare).first;
  while (entry && (entry->state == Entry::State::kRecorded || entry->state == Entry::State::kMismatched)) {
    advance(entry, inputs, host, Mode::kPrepare);
    entry = find(inputs, variant);  // a second recording takes the place of the first
  }
  if (!entry)
    throw Error(
        "[nimble::prepare] the function changes what it depends on each time it runs, so no recording stays "
        "valid");
  if (entry->state == Entry::State::kEager) throw RecordError("[nimble::prepare] " + entry->reason);
}

void Compiled::refresh() {
  std::vector<std::shared_ptr<Entry>> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(entries_);
  recorded_for_.clear();
  dropped.push_back(std::move(last_used_));
}

Stats Compiled::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.cached = entries_.size();
  if (last_used_ && last_used_->choice.executable) {
    const Choice& choice = last_used_->choice;
    const ExecutableReport report = choice.executable->report();
    stats.tasks = choice.tasks;
    stats.streams = choice.streams;
    stats.syncs = choice.syncs;
    stats.degree_of_concurrency = choice.degree_of_concurrency;
    stats.arena_bytes = report.arena_bytes;
    stats.allocated_bytes = choice.allocated_bytes;
    stats.unplanned_allocations = report.unplanned_allocations;
    stats.static_bytes = report.static_bytes;
    stats.workspace_bytes = report.workspace_bytes;
    stats.record_milliseconds = last_used_->record_milliseconds;
    stats.plan_milliseconds = choice.plan_milliseconds;
    stats.tune_milliseconds = choice.tune_milliseconds;
  }
  return stats;
}

std::string Compiled::program() const {
  const std::lock_guard lock(mutex_);
  return entries_.empty() || !entries_.front()->program ? "" : to_string(*entries_.front()->program);
}

std::string Compiled::task_graph() const {
  const std::lock_guard lock(mutex_);
  if (entries_.empty() || !entries_.front()->program) return "";
  const Program& program = *entries_.front()->program;
  return to_json(GraphFile{dependencies(program),
                           memory_demand(program, backend_for(program.device()).alignment()).specs});
}

std::string Compiled::explain() const {
  const std::lock_guard lock(mutex_);
  std::ostringstream text;
  text.precision(3);
  const auto mebibytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  if (entries_.empty()) text << "nothing recorded yet: the first call runs eagerly and is recorded\n";
  for (const auto& entry : entries_) {
    text << entry->signature.to_string() << '\n';
    if (entry->state == Entry::State::kEager) {
      text << "  runs eagerly: " << entry->reason << '\n';
      continue;
    }
    text << "  recorded       " << entry->program->tasks.size() << " tasks in " << entry->record_milliseconds
         << " ms\n";
    if (entry->state == Entry::State::kMismatched) {
      text << "  mismatch       " << entry->reason << "; the next call is recorded again\n";
      continue;
    }
    if (entry->state == Entry::State::kRecorded) {
      text << "  next           the next call is run both ways and compared\n";
      continue;
    }
    const Choice& choice = entry->choice;
    const ExecutableReport report = choice.executable->report();
    text << "  schedule       " << choice.streams << " streams, " << choice.syncs
         << " syncs, degree of concurrency " << choice.degree_of_concurrency << ", planned in "
         << choice.plan_milliseconds << " ms\n"
         << "  memory         " << mebibytes(report.arena_bytes) << " MiB arena for "
         << mebibytes(choice.allocated_bytes) << " MiB of allocations, " << report.unplanned_allocations
         << " unplanned\n";
    for (const Tried& tried : choice.tried) {
      text << "  tried          " << tried.streams << " streams";
      if (tried.threads_per_stream) text << " x " << tried.threads_per_stream << " threads";
      if (!tried.rejected.empty()) text << ": rejected, " << tried.rejected;
      if (tried.milliseconds > 0) text << ": " << tried.milliseconds << " ms";
      text << '\n';
    }
    text << "  replayed       " << entry->replays << " times\n";
  }
  return text.str();
}

}  // namespace nimble
