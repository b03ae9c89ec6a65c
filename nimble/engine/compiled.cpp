#include "nimble/engine/compiled.h"

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <utility>

#include "nimble/engine/backward_node.h"
#include "nimble/engine/check.h"
#include "nimble/engine/same_program.h"
#include "nimble/torch/rewrites/registry.h"

namespace nimble {

Compiled::Compiled(CompileOptions options) : options_(std::move(options)) {
  rewrites_named(options_.rewrites);  // refuses a name that does not exist
}
Compiled::~Compiled() = default;

// Guards are asked, and entries let go of, without holding the lock: both may wait for Python's own lock,
// whose owner may be waiting for ours.
std::shared_ptr<Entry> Compiled::find(const Tensors& inputs, std::int64_t variant) {
  const Settings settings = Settings::here();
  std::shared_ptr<Entry> found;
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const std::shared_ptr<Entry>& entry) {
      return entry->signature.matches(inputs, variant, settings) && entry->separates(inputs) &&
             entry->gradients_hold();
    });
    if (it == entries_.end()) return nullptr;
    found = *it;
    std::rotate(entries_.begin(), it, it + 1);
  }
  if (found->holds()) return found;
  drop(found);
  return nullptr;
}

void Compiled::drop(const std::shared_ptr<Entry>& entry) {
  std::string why = entry->what_changed();
  const std::lock_guard lock(mutex_);
  if (std::erase(entries_, entry) > 0) note_dropped(*entry, std::move(why));  // else another thread did
}

void Compiled::note_dropped(const Entry& entry, std::string why) {
  const auto before = std::ranges::find(dropped_, entry.signature, &Dropped::signature);
  const bool answered = entry.replays > 1;  // the first is the check's
  const std::size_t in_a_row = answered ? 0 : 1 + (before == dropped_.end() ? 0 : before->in_a_row);
  if (before != dropped_.end()) dropped_.erase(before);
  dropped_.insert(dropped_.begin(), {entry.signature, entry.is_planned(), in_a_row, std::move(why)});
  if (dropped_.size() > std::max<std::size_t>(1, options_.cache_size)) dropped_.pop_back();
}

// A recording takes many times as long as a call, so where none lives to answer one, no more are made.
bool Compiled::gives_up_recording(const Tensors& inputs, std::int64_t variant, Host& host) {
  constexpr std::size_t kInVain = 8;
  Recording none;
  {
    const Settings settings = Settings::here();
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(dropped_, [&](const Dropped& one) {
      return one.in_a_row >= kInVain && one.signature.matches(inputs, variant, settings);
    });
    if (found == dropped_.end()) return false;
    none.refusal =
        "[nimble::call] recordings are dropped again and again before any of them answers a call: " +
        found->why +
        ". Leave it as it is between calls (write into tensors in place, as copy_() does), or compile "
        "a part that does not depend on it; refresh() lets Nimble try again";
    dropped_.erase(found);
  }
  begin(std::make_shared<Entry>(Signature(inputs, variant)), std::move(none), host, Mode::kCall);
  return true;
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
      // Of one signature there are that many where arguments lie elsewhere each time.
      if (evicted.back()->signature == entries_.front()->signature)
        note_dropped(*evicted.back(),
                     "an argument lies in a tensor that the function reads itself, elsewhere each time");
      ++stats_.evictions;
      thrashes |= stats_.evictions == options_.cache_size;
    }
  }
  if (thrashes) {
    host.warn(
        "[nimble::call] signatures are recorded and dropped again and again: more than cache_size=" +
        std::to_string(options_.cache_size) +
        " different shapes, settings or values of arguments are in use. Raise cache_size, pad inputs to "
        "fewer shapes, or pass numbers as tensors");
  }
}

void Compiled::replace(const std::shared_ptr<Entry>& entry, std::shared_ptr<Entry> by, Host& host) {
  {
    const std::lock_guard lock(mutex_);
    std::erase(entries_, entry);
  }
  insert(std::move(by), host);
}

std::shared_ptr<Entry> Compiled::ready(const Tensors& inputs, std::int64_t variant) {
  if (is_recording()) return nullptr;
  auto entry = find(inputs, variant);
  if (!entry || entry->state != Entry::State::kReady) return nullptr;
  if (options_.validate_every > 0 && entry->replays > 0 && entry->replays % options_.validate_every == 0)
    return nullptr;
  if (entry->derivative && !entry->lend()) return nullptr;
  return entry;
}

CallResult Compiled::replay(const std::shared_ptr<Entry>& entry, const Tensors& inputs) {
  Tensors outputs;
  try {
    const std::lock_guard lock(entry->replaying);
    if (entry->state != Entry::State::kReady) {
      if (entry->derivative) entry->give_back();
      return {};
    }
    outputs = entry->replay(inputs);
    ++entry->replays;
  } catch (...) {
    if (entry->derivative) entry->give_back();
    throw;
  }
  if (entry->derivative) join_graph(entry, inputs, outputs);
  const std::lock_guard counting(mutex_);
  ++stats_.replays;
  return {std::move(outputs), true, entry->note};
}

CallResult Compiled::call(const Tensors& inputs, std::int64_t variant, Host& host) {
  if (is_recording()) return {host.run(inputs), false, nullptr};
  if (const auto entry = ready(inputs, variant)) {
    if (CallResult result = replay(entry, inputs); result.replayed) return result;
  }
  // Whoever prepares takes its time; others go on eagerly meanwhile. Taken before anything is looked up: what
  // is found may be about to change until then.
  std::unique_lock preparing(preparing_, std::try_to_lock);
  const auto eagerly = [&] {
    preparing = {};
    {
      const std::lock_guard lock(mutex_);
      ++stats_.eager_calls;
    }
    return CallResult{host.run(inputs), false, nullptr};
  };
  const auto entry = find(inputs, variant);
  if (!entry) refuse_if_strict(inputs, variant);
  if (!preparing || (!entry && gives_up_recording(inputs, variant, host))) return eagerly();
  // Its memory may be lent: a backward pass is still to come. Or it is due for another check, for which it is
  // borrowed.
  const bool borrows = entry && entry->derivative && entry->state == Entry::State::kReady;
  if (borrows && !entry->lend()) return eagerly();
  const auto give_back = c10::make_scope_exit([&] {
    if (borrows) entry->give_back();
  });
  // Asked last: the backward pass that had it until now may have given it up.
  if (entry && entry->state == Entry::State::kEager) return eagerly();
  if (!entry) return {first_call(inputs, variant, host, Mode::kCall), false, nullptr};
  return {advance(entry, inputs, host, Mode::kCall), false, nullptr};
}

Tensors Compiled::advance(const std::shared_ptr<Entry>& entry, const Tensors& inputs, Host& host, Mode mode) {
  switch (entry->state) {
    case Entry::State::kUnsettled:
      return settle(entry, inputs, host, mode);
    case Entry::State::kMismatched:
      return record_again(entry, inputs, host, mode);
    default:
      return check(entry, inputs, host, mode);
  }
}

Tensors Compiled::leaves() const {
  const auto known = [&] {
    const std::lock_guard lock(mutex_);
    return leaves_;
  }();
  Tensors leaves;
  for (const auto& weak : known) {  // without our lock: a tensor that is Python's takes Python's
    if (auto impl = weak.lock()) leaves.emplace_back(std::move(impl));
  }
  return leaves;
}

Recording Compiled::watch(Entry& entry, const Tensors& inputs, Host& host, Mode mode) {
  const bool throws = options_.strict || mode == Mode::kPrepare;
  Recording recording = record(inputs, host, throws ? OnRefusal::kThrow : OnRefusal::kReturn,
                               /*undoable=*/mode == Mode::kPrepare, leaves(), *entry.used);
  if (mode == Mode::kCall) UsedResults::observe(entry.used, inputs, recording.outputs);
  const std::lock_guard lock(mutex_);
  ++stats_.recordings;
  leaves_.clear();
  for (const at::Tensor& leaf : recording.leaves) leaves_.emplace_back(leaf.getIntrusivePtr());
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

// Fills an entry that has no program yet with what a recording made, and shares it with other threads: in
// this order, since they look at all of it.
void Compiled::begin(const std::shared_ptr<Entry>& entry, Recording&& recording, Host& host, Mode mode,
                     const std::shared_ptr<Entry>& instead_of) {
  constexpr int kAttempts = 3;
  const bool may_pass = !recording.program && recording.may_pass;
  // Says nothing against calling it, or against preparing it after that: nobody is to find it here.
  if (may_pass && mode == Mode::kPrepare) throw RecordError(recording.refusal);
  if (recording.program) {
    entry->adopt(std::move(recording), options_);
  } else {
    entry->state = Entry::State::kUnsettled;
    entry->reason = recording.refusal;
  }
  if (instead_of) {
    replace(instead_of, entry, host);
  } else {
    insert(entry, host);
  }
  if (entry->program) return;
  if (may_pass && entry->attempts < kAttempts) return;
  give_up(*entry, recording.refusal, host, mode, false);
}

void Compiled::refuse_if_strict(const Tensors& inputs, std::int64_t variant) const {
  if (!options_.strict) return;
  const std::lock_guard lock(mutex_);
  const Settings settings = Settings::here();
  // Gradients that are there now and were not before make another recording, but no other signature.
  const bool known = std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry->signature.matches(inputs, variant, settings) && !entry->gradients_hold();
  });
  const bool dropped = std::ranges::any_of(dropped_, [&](const Dropped& one) {
    return one.was_planned && one.signature.matches(inputs, variant, settings);
  });
  if (recorded_for_.empty() || (known && !dropped)) return;
  throw GuardError("[nimble::call] strict: called with " + Signature(inputs, variant).to_string() +
                   ", prepared for " + recorded_for_ +
                   " (or a module, parameter, optimizer or setting changed since). Call prepare() with such "
                   "arguments first, or compile without strict=True");
}

Tensors Compiled::first_call(const Tensors& inputs, std::int64_t variant, Host& host, Mode mode) {
  auto entry = std::make_shared<Entry>(Signature(inputs, variant));
  Recording recording = watch(*entry, inputs, host, mode);
  Tensors outputs = std::move(recording.outputs);
  begin(entry, std::move(recording), host, mode);
  return outputs;
}

Tensors Compiled::settle(const std::shared_ptr<Entry>& entry, const Tensors& inputs, Host& host, Mode mode) {
  auto next = std::make_shared<Entry>(entry->signature);
  next->attempts = entry->attempts + 1;
  next->mismatches = entry->mismatches;
  next->used = entry->used;
  Recording recording = watch(*next, inputs, host, mode);
  Tensors outputs = std::move(recording.outputs);
  begin(next, std::move(recording), host, mode, entry);
  return outputs;
}

Tensors Compiled::check(const std::shared_ptr<Entry>& entry, const Tensors& inputs, Host& host, Mode mode) {
  if (entry->derivative && entry->used->vary()) {
    give_up(*entry, "[nimble::record] the loss uses other results of the function from call to call", host,
            mode, false);
    return host.run(inputs);
  }
  if (entry->derivative && entry->derivative->lacks_a_result_of(*entry->used))
    return settle(entry, inputs, host, mode);
  const std::lock_guard replaying(entry->replaying);
  CheckResult result = check_against_eager(*entry, inputs, host, options_, /*undo=*/mode == Mode::kPrepare,
                                           [&](Part& part, Rewriting rewriting, Choice choice) {
                                             const std::lock_guard lock(mutex_);
                                             part.rewriting = std::move(rewriting);
                                             part.choice = std::move(choice);
                                           });
  if (mode == Mode::kCall) UsedResults::observe(entry->used, inputs, result.outputs);
  // Let go of without the lock, as all entries and schedules are.
  std::shared_ptr<Entry> used_before;
  std::vector<Part> schedules_before;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.validations;
    entry->reason = result.failure;
    if (result.failure.empty()) used_before = std::exchange(last_used_, entry);
  }
  if (result.failure.empty()) {
    ++entry->replays;
    entry->state = Entry::State::kReady;
  } else if (entry->is_rewritten()) {
    // Another program gets its check next: one that is rewritten more carefully, or the recorded one.
    const bool once_more = result.other_values && entry->could_be_more_precise();
    host.log(std::string("[nimble::check] ") +
             (once_more ? "rewritten once more without TF32: " : "rewrites dropped: ") + result.failure);
    const std::lock_guard lock(mutex_);
    if (once_more) {
      schedules_before = entry->rewrite_without_tf32(result.failure);
    } else {
      schedules_before = entry->drop_rewrites(result.failure);
    }
    entry->state = Entry::State::kRecorded;
  } else if (result.refused) {
    give_up(*entry, result.failure, host, mode, false);
  } else {
    entry->state = Entry::State::kMismatched;
    host.log("[nimble::check] " + result.failure + "; recording once more");
  }
  return std::move(result.outputs);
}

// A replay differed from eager. If a second recording differs from the first, the function changed on the
// host in between: perhaps it set something up once, so the new recording gets its chance, but not for ever.
// If it does not differ, the replay itself cannot be trusted.
Tensors Compiled::record_again(const std::shared_ptr<Entry>& entry, const Tensors& inputs, Host& host,
                               Mode mode) {
  constexpr int kMismatches = 2;
  const std::lock_guard replaying(entry->replaying);
  Recording again = watch(*entry, inputs, host, mode);
  Tensors outputs = std::move(again.outputs);
  if (!again.program) {
    give_up(*entry, again.refusal, host, mode, false);
    return outputs;
  }
  auto difference = first_difference(*entry->program, *again.program);
  if (!difference && entry->note && !entry->note->same_as(*again.note))
    difference = Difference{entry->reason};
  if (!difference) {
    give_up(*entry, "[nimble::check] " + entry->reason, host, mode, true);
    return outputs;
  }
  auto next = std::make_shared<Entry>(entry->signature);
  next->mismatches = entry->mismatches + 1;
  next->used = entry->used;
  const std::size_t step = difference->task ? again.program->tasks[*difference->task].step : 0;
  if (step > 0 && host.take_over(step)) {
    again.program = nullptr;
    again.may_pass = true;
    again.refusal = difference->text;
  } else if (next->mismatches >= kMismatches) {
    give_up(*entry,
            "[nimble::check] the function does something else at each call: " + difference->text +
                ". What changes on the host cannot be replayed; pass it in as a tensor",
            host, mode, true);
    return outputs;
  }
  host.log("[nimble::check] recorded anew: " + difference->text);
  begin(next, std::move(again), host, mode, entry);
  return outputs;
}

void Compiled::prepare(const Tensors& inputs, std::int64_t variant, Host& host) {
  if (is_recording()) throw Error("[nimble::prepare] called while another function is being recorded");
  const std::lock_guard preparing(preparing_);
  auto entry = find(inputs, variant);
  if (!entry) {
    first_call(inputs, variant, host, Mode::kPrepare);
    entry = find(inputs, variant);
  }
  while (entry && entry->state != Entry::State::kReady && entry->state != Entry::State::kEager) {
    advance(entry, inputs, host, Mode::kPrepare);
    entry = find(inputs, variant);  // a second recording takes the place of the first
  }
  if (!entry)
    throw Error(
        "[nimble::prepare] the function changes what it depends on each time it runs, so no recording stays "
        "valid");
  if (entry->state == Entry::State::kEager)
    throw RecordError("[nimble::prepare] " + entry->why_not_replayed());
}

void Compiled::refresh() {
  std::vector<std::shared_ptr<Entry>> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(entries_);
  dropped_.clear();
  recorded_for_.clear();
  dropped.push_back(std::move(last_used_));
}

}  // namespace nimble
