#include "nimble/engine/rewriting.h"

#include <algorithm>
#include <chrono>
#include <unordered_set>

#include "nimble/engine/known_replays.h"
#include "nimble/engine/measure_alone.h"
#include "nimble/engine/times_on_disk.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/convolution_settings.h"
#include "nimble/torch/rewrites/linear_layer.h"
#include "nimble/torch/rewrites/registry.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

// A batch norm writes its statistics without a new version, but counts its batches in the same breath.
bool is_counter(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 0 && tensor.scalar_type() == at::kLong;
}

// The sources, and the tensors outside by which a change of theirs may show: counters, and whatever else
// looks at the memory of one (a program may have been given `p.data`, which counts for itself).
std::vector<at::Tensor> with_those_that_tell(std::vector<at::Tensor> sources,
                                             std::span<const at::Tensor> outside) {
  std::unordered_set<const c10::StorageImpl*> storages;
  for (const at::Tensor& source : sources) storages.insert(source.storage().unsafeGetStorageImpl());
  for (const at::Tensor& tensor : outside) {
    const bool shares = tensor.defined() && tensor.has_storage() &&
                        storages.contains(tensor.storage().unsafeGetStorageImpl());
    if (shares || is_counter(tensor)) sources.push_back(tensor);
  }
  return sources;
}

bool may_round(const Task& task) {
  const auto layer = linear_layer(task);
  return may_round_to_tf32(task) || (layer && may_round_to_tf32(*layer));
}

constexpr const char* kSlower = "the program was slower with it";

auto report_of_layout(const Rewriting& rewriting) {
  return std::ranges::find_if(rewriting.reports, [](const RewriteReport& report) {
    return report.name == kChannelsLast.name && (report.dropped.empty() || report.dropped == kSlower);
  });
}

// Of the recorded program's time. Nothing is gained by what was dropped.
double part_of_time(const Rewriting& rewriting) {
  const bool is_dropped = std::ranges::all_of(
      rewriting.reports, [](const RewriteReport& report) { return !report.dropped.empty(); });
  return is_dropped ? 1 : rewriting.milliseconds_rewritten / rewriting.milliseconds_recorded;
}

// In milliseconds, on one stream; measured only where no earlier process did.
RewritingTimes time_both(const std::shared_ptr<const Program>& recorded,
                         const std::shared_ptr<const Program>& rewritten, std::span<const at::Tensor> inputs,
                         double seconds, const std::shared_ptr<KnownTimes>& known_times) {
  KnownReplays before(known_times, *recorded), after(known_times, *rewritten);
  if (const auto recorded_time = before.on_one_stream(*rewritten),
      rewritten_time = after.on_one_stream(*recorded);
      recorded_time && rewritten_time) {
    return {*recorded_time, *rewritten_time};
  }
  const auto times = time_programs({recorded, rewritten}, inputs, seconds);
  before.add_on_one_stream(*rewritten, times[0]);
  after.add_on_one_stream(*recorded, times[1]);
  return {times[0], times[1]};
}

Rewriting rewrite_by(std::span<const Rewrite* const> rewrites, const std::shared_ptr<const Program>& program,
                     std::span<const at::Tensor> inputs, const CompileOptions& options,
                     const RewriteContext& context, std::span<const at::Tensor> outside) {
  Rewriting rewriting{.program = program};
  const auto start = Clock::now();
  AppliedRewrites applied = apply_rewrites(*program, rewrites, inputs, context);
  rewriting.reports = std::move(applied.reports);
  rewriting.exact = applied.exact;
  std::vector<at::Tensor> sources = derived_from(applied.program);
  if (!sources.empty()) {
    rewriting.weights.emplace(with_those_that_tell(std::move(sources), outside));
  }
  if (rewriting.reports.empty()) return rewriting;
  rewriting.program = std::make_shared<const Program>(std::move(applied.program));
  // Two programs at once would take twice the memory of a step of training. Each of its new kernels was
  // measured against what it replaces.
  if (options.tune_seconds > 0 && !context.trains) {
    keep_the_faster(rewriting, program,
                    time_both(program, rewriting.program, inputs, options.tune_seconds, context.known));
  }
  rewriting.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return rewriting;
}

}  // namespace

void Rewriting::follow_weights(Executable& executable) {
  if (!weights || weights->unchanged()) return;
  executable.let_current_stream_wait();  // until nobody reads the old ones any more
  Versions now = *weights;
  now.look();
  derive_all(*program);
  weights = std::move(now);  // not before: where that throws, the next call tries again
}

void keep_the_faster(Rewriting& rewriting, const std::shared_ptr<const Program>& recorded,
                     const RewritingTimes& times) {
  constexpr double kClearlySlower = 1.05;
  rewriting.milliseconds_recorded = times.recorded;
  rewriting.milliseconds_rewritten = times.rewritten;
  if (times.rewritten <= kClearlySlower * times.recorded) return;
  for (RewriteReport& report : rewriting.reports) report.dropped = kSlower;
  rewriting.program = recorded;
  rewriting.exact = true;
  rewriting.weights.reset();
}

Rewriting rewrite(const std::shared_ptr<const Program>& program, std::span<const at::Tensor> inputs,
                  const CompileOptions& options, bool trains, bool precise,
                  std::span<const at::Tensor> outside) {
  auto rewrites = rewrites_named(options.rewrites);
  if (rewrites.empty()) return {.program = program};
  RewriteContext context{.device = program->device(),
                         .precise = precise,
                         .trains = trains,
                         .tolerant = options.tolerance.value_or(0) > 0};
  constexpr double kForEach = 12;  // times the time to tune the schedule of the whole
  context.measure_seconds = kForEach * options.tune_seconds;
  if (options.tune_seconds > 0) {
    context.measure = measure_alone;
    context.measure_side_by_side = measure_side_by_side;
    context.known = times_on_disk(context.device);
  }
  Rewriting changed = rewrite_by(rewrites, program, inputs, options, context, outside);
  if (!may_prefer_recorded_layout(changed)) return changed;
  std::erase(rewrites, &kChannelsLast);
  try {
    Rewriting as_recorded = rewrite_by(rewrites, program, inputs, options, context, outside);
    return faster_layout(std::move(changed), std::move(as_recorded));
  } catch (const std::exception&) {  // no memory for one more, most likely
    return changed;
  }
}

bool may_prefer_recorded_layout(const Rewriting& rewriting) {
  constexpr double kHardlyFaster = 0.9;
  return report_of_layout(rewriting) != rewriting.reports.end() &&
         rewriting.milliseconds_rewritten > kHardlyFaster * rewriting.milliseconds_recorded;
}

Rewriting faster_layout(Rewriting changed, Rewriting as_recorded) {
  const double both = changed.milliseconds + as_recorded.milliseconds;
  const bool is_faster = !as_recorded.reports.empty() && part_of_time(as_recorded) < part_of_time(changed);
  if (is_faster) {
    RewriteReport report = *report_of_layout(changed);
    report.dropped = kSlower;
    as_recorded.reports.insert(as_recorded.reports.begin(), std::move(report));
  }
  Rewriting& faster = is_faster ? as_recorded : changed;
  faster.milliseconds = both;
  return std::move(faster);
}

bool could_be_more_precise(const Rewriting& rewriting, const Program& recorded) {
  const bool takes_fast_calls = std::ranges::any_of(rewriting.reports, [](const RewriteReport& report) {
    static const std::string_view kMayRound[] = {kFuseConvolution.name, kMatrixLinear.name,
                                                 kGroupConvolutions.name, kSumOfProducts.name,
                                                 kCatByAddress.name};
    return std::ranges::find(kMayRound, report.name) != std::end(kMayRound) && report.dropped.empty();
  });
  return takes_fast_calls && std::ranges::any_of(recorded.tasks, may_round);
}

}  // namespace nimble
