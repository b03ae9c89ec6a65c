#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nimble/engine/choose.h"
#include "nimble/engine/recording.h"
#include "nimble/engine/rewriting.h"
#include "nimble/engine/signature.h"

namespace nimble {

// A stretch of a program that is replayed in one go. Behind each but the last, the host does something
// itself.
struct Part {
  std::shared_ptr<const Program> program;  // as recorded
  Rewriting rewriting = {};                // both are changed under the lock of the cache
  Choice choice = {};

  Tensors replay(std::span<const at::Tensor> inputs) {
    rewriting.follow_weights(*choice.executable);
    return choice.executable->replay(inputs);
  }
};

// What is known of one signature, and where it stands.
class Entry {
 public:
  enum class State {
    kUnsettled,   // the call set up something that stays (an optimizer's state): the next is recorded again
    kRecorded,    // the next call is run both ways
    kMismatched,  // they differed: the next call is recorded again, to find out why
    kReady,
    kEager,
  };

  explicit Entry(Signature signature) : signature(std::move(signature)) {}

  void adopt(Recording&& recording, const CompileOptions& options);

  // Whether the program holds here and now, besides the signature.
  bool holds() const;
  // Asked after it did not: what is another, in words.
  std::string what_changed() const;
  bool gradients_hold() const { return gradients.hold(); }

  // False if an argument lies in the memory of an outside tensor and was not there, at the same place, when
  // the program was recorded, or the other way round.
  bool separates(std::span<const at::Tensor> inputs) const;

  // Replays all parts, and lets the host do its share between them; of a derivative, the forward pass alone.
  Tensors replay(std::span<const at::Tensor> inputs);

  // A forward pass leaves what its backward pass needs in memory that the next forward pass overwrites: until
  // it is given back, nobody else may have it. False if somebody has.
  bool lend() { return !lent_.exchange(true); }
  void give_back() { lent_ = false; }

  // The parts change tensors outside, or belong to a backward pass.
  bool trains() const;

  // Rewrites changed the program, or would have, had they not failed at the second attempt.
  bool is_rewritten() const;

  // Results of the rewritten program are too far from eager's: it is to be rewritten once more, so that no
  // convolution is rounded to TF32, which eager's kernels need not do where it is allowed.
  bool could_be_more_precise() const;
  std::vector<Part> rewrite_without_tf32(const std::string& why);  // the schedules until now

  // Goes back to the recorded program.
  std::vector<Part> drop_rewrites(const std::string& why);

  // Why it runs eagerly, or is recorded again, in words; empty where it is neither.
  std::string why_not_replayed() const;

  bool is_planned() const { return !parts.empty() && parts.back().choice.executable; }

  const Signature signature;
  std::atomic<State> state = State::kRecorded;
  // Set before the entry is shared and never changed after.
  std::shared_ptr<const Program> program;
  std::vector<Part> parts;
  Gradients gradients;
  std::optional<Derivative> derivative;  // then there are two parts: forward and backward
  // What the backward pass reads besides what the forward pass left it.
  std::vector<std::size_t> inputs_for_backward;
  Tensors outside_for_backward;
  std::shared_ptr<UsedResults> used = std::make_shared<UsedResults>();
  std::unique_ptr<OutsideGuard> guard;
  std::shared_ptr<HostNote> note;
  struct OutsideTensor {
    const c10::TensorImpl* tensor;    // kept alive by the program, or below
    const c10::StorageImpl* storage;  // that it had; alive as long as it still has it
    const void* address;              // nullptr: wherever the executable has moved it
    std::size_t bytes;
    std::int64_t offset;
    std::size_t dimensions;
    caffe2::TypeMeta dtype;
    c10::DispatchKeySet kind;  // whether it is conjugated, among other things
    bool requires_grad;        // in a program that autograd had a part in
  };
  std::vector<OutsideTensor> outside;
  std::vector<std::int64_t> outside_forms;  // size and stride, by their dimensions, one after the other
  std::set<const c10::StorageImpl*> outside_storages;
  // By input: where it lies in the memory of an outside tensor; nullptr for elsewhere.
  struct PlaceOutside {
    const c10::StorageImpl* storage = nullptr;
    std::int64_t offset = 0;
  };
  std::vector<PlaceOutside> places_of_inputs;
  Tensors known_outside;  // parameters and buffers of the modules that ran
  // Changed under the lock of the cache: why rewrites may not round to TF32, and why they were dropped.
  std::string why_without_tf32, rewrites_dropped;
  std::string reason;  // changed under the lock of the cache; to read it, see why_not_replayed
  std::mutex replaying;
  std::atomic<std::uint64_t> replays = 0;
  int attempts = 1;    // at a recording that can be replayed
  int mismatches = 0;  // of recordings before this one
  double record_milliseconds = 0;

 private:
  void prepare_backward();
  void watch(const at::Tensor& tensor, const void* address, std::size_t bytes);
  std::size_t first_changed() const;  // of the tensors outside
  std::vector<Part> take_schedules();

  std::atomic<bool> lent_ = false;
};

}  // namespace nimble
