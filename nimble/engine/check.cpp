#include "nimble/engine/check.h"

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>

#include "nimble/engine/effects.h"
#include "nimble/engine/kernels_in_schedule.h"
#include "nimble/engine/times_on_disk.h"
#include "nimble/engine/tolerance.h"
#include "nimble/engine/wording.h"
#include "nimble/torch/record_error.h"
#include "nimble/torch/run_in_double.h"

namespace nimble {
namespace {

// No matter of the user's, whom eager answers all the same: there was no memory for it, say.
std::string not_compared(const std::exception& error) {
  return "a replay could not be compared with eager's run: " + what_of(error);
}

// What happens around one part: replayed first, then done again by eager code, then compared.
class PartCheck {
 public:
  PartCheck(Entry& entry, std::size_t index, const Tensors& inputs, const CompileOptions& options, bool undo,
            const Publish& publish)
      : entry_(entry),
        part_(entry.parts[index]),
        index_(index),
        is_last_(index + 1 == entry.parts.size()),
        inputs_(inputs) {
    for (const Buffer& buffer : part_.program->buffers) {
      if (buffer.kind == BufferKind::kEscaped) escaped_.push_back(buffer.outside);
    }
    try {
      before_ = OutsideState::save(*part_.program, inputs);
    } catch (const std::exception& error) {
      if (undo) throw;  // nobody could put back what eager code is about to do
      failure_ = not_compared(error);
      return;
    }
    try {
      prepare(inputs, options, publish);
      replayed_ = replay();
      spread_ = measure_spread(part_.program->device(), replayed_, [&] { return replay(); });
      if (!part_.rewriting.exact) {
        tolerance_ = tolerance_for(*part_.program, inputs, options.tolerance, [this] { return in_double(); });
      }
      if (!is_last_) {
        for (const at::Tensor& tensor : escaped_) left_.keep(tensor);
      }
    } catch (const RecordError& error) {
      failure_ = error.what();
      refused_ = true;
    } catch (const std::exception& error) {
      failure_ = "[nimble::replay] " + what_of(error);
    }
    before_.restore();
  }

  // Asked when eager code has done the same.
  std::string failure(const Tensors& eager_results) {
    if (!failure_.empty()) return failure_;
    try {
      return difference_from(eager_results);
    } catch (const std::exception& error) {
      return not_compared(error);
    }
  }
  bool refused() const { return refused_; }
  bool has_other_values() const { return other_values_; }

  void undo() const noexcept { before_.try_restore(); }

  // What the replay of this part left for the next.
  void hand_over() const { left_.restore(); }

 private:
  enum class Whose { kRecorded, kEager };

  std::string difference_from(const Tensors& eager_results) {
    const Effects eager = observe(eager_results, Whose::kEager);
    auto differs = replayed_.difference(eager, spread_, tolerance_);
    if (differs && spread_ && !is_backward_to_come()) {
      try {
        const OutsideState eagers = OutsideState::save(*part_.program, inputs_);
        const auto as_eager_left_it = c10::make_scope_exit([&] { eagers.try_restore(); });
        differs = unexplained_difference(
            replayed_, eager, spread_, part_.program->device(), [&] { return replay(); }, tolerance_);
      } catch (const std::exception&) {
        // There may be no memory for it; then the difference stands.
      }
    }
    if (!differs) return "";
    other_values_ = true;
    return differs->name + " differs from eager's after a replay" +
           (differs->excess.empty() ? "" : ": " + differs->excess);
  }

  void prepare(const Tensors& inputs, const CompileOptions& options, const Publish& publish) {
    if (part_.choice.executable) return part_.rewriting.follow_weights(*part_.choice.executable);
    Rewriting rewriting{.program = part_.program};
    if (entry_.rewrites_dropped.empty()) {
      rewriting = rewrite(part_.program, inputs, options, entry_.trains(),
                          /*precise=*/!entry_.why_without_tf32.empty(), entry_.known_outside);
    }
    const bool measures_kernels = rewriting.program != part_.program && !entry_.trains() &&
                                  part_.program->device().is_cuda() && options.tune_seconds > 0;
    const auto known = measures_kernels ? times_on_disk(part_.program->device()) : nullptr;
    Choice choice = choose_schedule(rewriting.program, inputs, before_, options,
                                    /*owns_escaped=*/entry_.parts.size() == 1, known);
    if (measures_kernels) {
      try {
        choose_kernels_in_schedule(rewriting, choice, inputs, options, known);
      } catch (const std::exception&) {  // no memory to measure with: the kernels stay as they are
      }
    }
    publish(part_, std::move(rewriting), std::move(choice));
  }

  Effects replay() const {
    return observe(replay_from(before_, *part_.choice.executable, inputs_), Whose::kRecorded);
  }

  // Whoever goes backward from eager's results needs the versions that its forward pass saw.
  bool is_backward_to_come() const { return entry_.derivative && !is_last_; }

  // What a run in float64 from the same state leaves; nothing where there is none, or no memory for it.
  Tensors in_double() const {
    try {
      const OutsideState now = OutsideState::save(*part_.program, inputs_);
      const auto as_it_is_now = c10::make_scope_exit([&] { now.try_restore(); });
      before_.restore();
      const auto run = run_in_double(*part_.program, inputs_);
      if (!run) return {};
      const auto seen = [&](const at::Tensor& tensor) { return run->in_place_of(tensor); };
      return observe(run->results, Whose::kRecorded, seen).values();
    } catch (const std::exception&) {
      return {};
    }
  }

  // Eager code puts new tensors where some escaped to (gradients, attributes), so their values count and not
  // their memory.
  Effects observe(const Tensors& results, Whose whose, const Effects::Seen& seen = Effects::as_it_is) const {
    Effects effects = Effects::observe(results, before_, escaped_, seen);
    const auto add = [&](const char* name, const at::Tensor& recorded, const at::Tensor& now) {
      effects.add(name, seen(whose == Whose::kRecorded ? recorded : now));
    };
    if (entry_.derivative && is_last_) return effects;
    const Gradients::Visit add_gradient = [&](const at::Tensor& leaf, const at::Tensor& recorded) {
      add("a gradient", recorded, leaf.grad());
    };
    if (!is_last_ && !entry_.derivative) {
      entry_.gradients.for_each_at_pause(index_, add_gradient);
      return effects;
    }
    entry_.gradients.for_each_at_end(add_gradient);
    for (const auto& [recorded, now] :
         entry_.guard ? entry_.guard->kept() : std::vector<OutsideGuard::Kept>{}) {
      add("an attribute that the function sets", recorded, now);
    }
    return effects;
  }

  Entry& entry_;
  Part& part_;
  std::size_t index_;
  bool is_last_;
  Tensors inputs_;
  Tensors escaped_;
  OutsideState before_, left_;
  Effects replayed_;
  std::optional<Spread> spread_;
  std::optional<Tolerance> tolerance_;
  std::string failure_;
  bool refused_ = false, other_values_ = false;
};

}  // namespace

CheckResult check_against_eager(Entry& entry, const Tensors& inputs, Host& host,
                                const CompileOptions& options, bool undo, const Publish& publish) {
  // Whoever holds a gradient makes the replay spare it (Gradients::before_replay).
  const Gradients gradients_before = undo ? Gradients(entry.gradients.leaves()) : Gradients();
  CheckResult result;
  std::vector<std::unique_ptr<PartCheck>> checks;
  const auto begin_part = [&](const Tensors& arguments) {
    checks.push_back(std::make_unique<PartCheck>(entry, checks.size(), arguments, options, undo, publish));
  };
  const auto end_part = [&](const Tensors& results) {
    if (result.failure.empty()) {
      result.failure = checks.back()->failure(results);
      result.refused = checks.back()->refused();
      result.other_values = checks.back()->has_other_values();
    }
  };
  const Host::Pauses pauses{
      .before = [&](std::size_t) { end_part({}); },
      .after =
          [&](std::size_t pause) {
            if (pause + 1 >= entry.parts.size()) return;
            checks.back()->hand_over();
            entry.gradients.follow_host_at_pause(pause);
            begin_part(inputs);
          },
  };
  entry.gradients.before_replay();
  begin_part(inputs);
  const auto put_back = c10::make_scope_exit([&] {
    if (!undo) return;
    for (auto check = checks.rbegin(); check != checks.rend(); ++check) (*check)->undo();
    gradients_before.undo();
  });
  {
    const RecordingScope nothing_inside_is_replayed;
    result.outputs = host.run(inputs, &pauses);
  }
  const auto compare_note = [&] {
    const auto note = host.note();
    if (result.failure.empty() && entry.note && !entry.note->same_as(*note)) {
      result.failure = "a result that is no tensor was something else the next time";
    }
  };
  if (entry.derivative) {
    end_part(result.outputs);
    compare_note();
    if (!result.failure.empty()) return result;
    try {
      const Tensors gradients = entry.derivative->some_gradients(result.outputs);
      Tensors arguments = inputs;
      arguments.insert(arguments.end(), gradients.begin(), gradients.end());
      checks.back()->hand_over();
      begin_part(arguments);
      const RecordingScope on_this_thread;
      end_part(entry.derivative->eagerly(inputs, result.outputs, gradients));
    } catch (const c10::Error& error) {  // not what somebody's hooks in Python throw
      result.failure = not_compared(error);
    }
    return result;
  }
  if (checks.size() != entry.parts.size()) {
    if (result.failure.empty()) result.failure = "the host did something else in between the next time";
    return result;
  }
  end_part(result.outputs);
  compare_note();
  if (result.failure.empty() && !undo) entry.gradients.follow_eager();
  return result;
}

}  // namespace nimble
