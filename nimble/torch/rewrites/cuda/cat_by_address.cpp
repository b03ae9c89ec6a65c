// A concatenation runs nothing: who makes a part writes it straight into its place of the whole.
//
//   %2 = nimble::max_pool2d(%0, …)         %4 = nimble::max_pool2d(%0, …, out = %4[:, :8])
//   %3 = mul(%0, %1)                 ──▶   %4 = mul(%0, %1, out = %4[:, 8:])
//   %4 = cat(%2, %3)
//
// A convolution of PyTorch's, which cannot do that, is made by our own kernel instead, if that takes less
// time than the convolution and the concatenation. Any other part is copied into its place, if there is time
// for the copy while a later part is being made. Whoever else reads a part reads the slice, and must be able
// to do so without a copy.

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

#include "nimble/torch/operator_facts.h"
#include "nimble/torch/rewrites/all.h"
#include "nimble/torch/rewrites/cuda/matrix_kernel.h"
#include "nimble/torch/rewrites/cuda/slices.h"
#include "nimble/torch/rewrites/edit.h"
#include "nimble/torch/rewrites/faster_of.h"

namespace nimble {
namespace {

bool joins(const Task& task) {
  return (is_call_of(task, "aten::cat") || is_call_of(task, "aten::stack")) && task.arguments.size() == 2;
}

const TensorRefList& parts_of(const Task& cat) { return std::get<TensorRefList>(cat.arguments[0]); }

struct Copy {
  TensorRef from, to;
};

using Slices = std::map<BufferId, TensorRef>;  // by part: where it is found from now on

TensorRef moved(const TensorRef& ref, const Slices& slices) {
  const auto found = slices.find(ref.buffer);
  return found == slices.end() ? ref : found->second;
}

// What becomes of a concatenation, and of those that it is made of.
struct Plan {
  std::vector<TaskId> gone;
  std::vector<TaskId> writers;  // by part that is written into its place: who does it
  Slices slice_of;
  std::map<TaskId, std::vector<Copy>> copies;  // by the concatenation in whose place they are made
  std::map<TaskId, Task> chosen = {};          // by writer: how it does it

  void add(Plan other) {
    gone.insert(gone.end(), other.gone.begin(), other.gone.end());
    writers.insert(writers.end(), other.writers.begin(), other.writers.end());
    slice_of.merge(other.slice_of);
    copies.merge(other.copies);
    for (auto& [writer, task] : other.chosen) chosen.insert_or_assign(writer, std::move(task));
  }
};

class ByAddress {
 public:
  ByAddress(const Program& program, const RewriteContext& context)
      : program_(program),
        measures_(context.measure != nullptr),
        chooses_(context.chooses()),
        precise_(context.precise),
        uses_(program),
        depth_(depths(program)),
        edit_(program),
        chooser_(context) {}

  Rewritten run() {
    Rewritten result{.program = {}};
    // From the last to the first: a concatenation of concatenations takes those in.
    for (auto i = static_cast<std::uint32_t>(program_.tasks.size()); i-- > 0;) {
      const TaskId cat{i};
      if (!joins(program_.task(cat)) || gone_.contains(cat)) continue;
      const TensorRef& whole = first_result(program_.task(cat));
      if (program_.buffer(whole.buffer).kind != BufferKind::kInternal || !is_written_once(whole)) continue;
      auto plan = faster_plan_for(cat, whole);
      if (!plan) continue;
      result.sites.push_back(site_of(cat, *plan));
      gone_.insert(plan->gone.begin(), plan->gone.end());
      plan_.add(*std::move(plan));
    }
    std::reverse(result.sites.begin(), result.sites.end());
    make_changes();
    result.program = std::move(edit_).finish();
    result.gained = chooser_.gained();
    return result;
  }

 private:
  bool is_written_once(const TensorRef& ref) const { return uses_.writers(ref.buffer).size() == 1; }

  // With convolutions of PyTorch's made by our own kernel, or without.
  std::optional<Plan> faster_plan_for(TaskId cat, const TensorRef& whole) {
    for (const bool converts : {true, false}) {
      auto plan = plan_for(cat, whole, converts && chooses_);
      if (plan && is_faster(*plan, converts && chooses_)) return plan;
    }
    return {};
  }

  // How the parts of `cat` get into `whole`, which is its result or a slice of something larger. `converts`
  // says whether convolutions that cannot write to slices may be made by our own kernel.
  std::optional<Plan> plan_for(TaskId cat, const TensorRef& whole, bool converts) const {
    const auto& parts = parts_of(program_.task(cat)).refs;
    const auto places = slices_for(program_.task(cat), whole);
    if (!places) return {};
    Plan plan{.gone = {cat}, .writers = {}, .slice_of = {}, .copies = {}};
    std::vector<Copy> copies;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const TensorRef& part = *parts[p];
      const TensorRef& place = (*places)[p];
      auto written = plan_to_write(part, place, cat, converts);
      if (written) {
        plan.add(*std::move(written));
        plan.slice_of.emplace(part.buffer, place);
      } else {
        copies.push_back({part, place});
      }
    }
    // The copies must be few, and done before the last part is there anyway.
    if (copies.size() > plan.writers.size()) return {};
    std::size_t latest = 0;
    for (const TaskId writer : plan.writers) latest = std::max(latest, depth_[writer.index()]);
    for (const Copy& copy : copies) {
      if (uses_.is_weight(copy.from)) continue;  // is there before anything runs
      for (const TaskId writer : uses_.writers(copy.from.buffer)) {
        if (depth_[writer.index()] >= latest) return {};
      }
    }
    if (!copies.empty()) plan.copies.emplace(cat, std::move(copies));
    return plan;
  }

  // How a part gets into its place without a copy.
  std::optional<Plan> plan_to_write(const TensorRef& part, const TensorRef& place, TaskId cat,
                                    bool converts) const {
    // One that depends on weights alone is made once, and cannot be if it is a part of something else.
    if (!uses_.is_private(part.buffer) || !is_written_once(part) || uses_.is_weight(part)) return {};
    const TaskId maker = uses_.writers(part.buffer)[0];
    const auto made = made_by(program_.task(maker));
    if (!made || std::ranges::find(*made, part) == made->end() ||
        program_.task(maker).part != program_.task(cat).part) {
      return {};
    }
    if (!same_order(part, place) || !is_rows(place) || !others_read_slices(part, cat)) return {};
    if (joins(program_.task(maker))) return plan_for(maker, place, converts);
    if (ways_to_write(maker, {{part.buffer, place}}, converts).empty()) return {};
    return Plan{.gone = {}, .writers = {maker}, .slice_of = {}, .copies = {}};
  }

  bool others_read_slices(const TensorRef& part, TaskId cat) const {
    std::size_t taken = 0;
    for (const TaskId reader : uses_.readers(part.buffer)) {
      const Task& task = program_.task(reader);
      for (const TensorRef& ref : task.reads) {
        if (ref.buffer != part.buffer) continue;
        if (!(ref == part)) return false;
        taken += reader == cat ? 1 : 0;
      }
      if (reader != cat && !reads_slices(task)) return false;
    }
    return taken == 1;
  }

  // Measured without the copies, which are made beside other work. Also settles how each writer does it.
  bool is_faster(Plan& plan, bool converts) {
    Slices slices = plan.slice_of;  // with other results of the same writers
    slices.insert(plan_.slice_of.begin(), plan_.slice_of.end());
    std::vector<Task> by_address, as_it_is;
    for (const TaskId writer : std::set(plan.writers.begin(), plan.writers.end())) {
      by_address.push_back(fastest_writer(writer, slices, converts));
      plan.chosen.insert_or_assign(writer, by_address.back());
      const auto before = plan_.chosen.find(writer);
      as_it_is.push_back(before == plan_.chosen.end() ? program_.task(writer) : before->second);
    }
    if (!measures_) return true;
    for (const TaskId cat : plan.gone) as_it_is.push_back(program_.task(cat));
    const std::vector<std::vector<Task>> candidates = {as_it_is, by_address};
    if (chooser_.faster_of(edit_.buffers(), candidates, /*clearly=*/1.0) == 0) return false;
    chooser_.took(by_address, as_it_is);
    return true;
  }

  Task fastest_writer(TaskId writer, const Slices& slices, bool converts) {
    std::vector<std::vector<Task>> candidates;
    for (Task& way : ways_to_write(writer, slices, converts)) candidates.push_back({std::move(way)});
    const std::size_t best = candidates.size() > 1 ? chooser_.faster_of(edit_.buffers(), candidates) : 0;
    return candidates[best][0];
  }

  // The tasks that do what `writer` does and write what is a part to its slice.
  std::vector<Task> ways_to_write(TaskId writer, const Slices& slices, bool converts) const {
    const Task& task = program_.task(writer);
    const auto results = made_by(task);
    TensorRefList places;
    for (const TensorRef& result : *results) places.refs.emplace_back(moved(result, slices));
    const TensorRef& place = *places.refs.front();
    if (const auto op = out_form(task, program_.buffer(place.buffer).device)) {
      return proposals(task_writing_to(places, writer, *op, task.arguments, edit_));
    }
    std::vector<Task> ways;
    const auto call = converts ? convolution_call(task, uses_) : std::nullopt;
    if (!call || !suits_matrix_kernel(call->convolution)) return ways;
    static const auto op = find_operator("nimble::matrix_convolution", "out");
    for (MatrixWay& way : matrix_ways(*call, precise_)) {
      ways.push_back(task_writing_to(places, writer, op, std::move(way.arguments), edit_));
    }
    return ways;
  }

  // What cuDNN thinks best for a result of its own need not be best for a slice. How our own kernels divide
  // their work does not depend on where they write.
  static std::vector<Task> proposals(Task task) {
    constexpr std::int64_t kProposals = 3;
    std::vector<Task> all = {std::move(task)};
    if (!is_call_of(all[0], "nimble::fused_convolution")) return all;
    const auto argument = argument_named(all[0].op, "candidate");
    for (std::int64_t n = 0; n < kProposals; ++n) {
      all.push_back(all[0]);
      all.back().arguments[*argument] = c10::IValue(n);
    }
    return all;
  }

  std::string site_of(TaskId cat, const Plan& plan) const {
    std::size_t copied = 0;
    for (const auto& [at, copies] : plan.copies) copied += copies.size();
    return task_name(program_, cat) + ": " + std::to_string(plan.writers.size()) + " parts written in place" +
           (copied ? ", " + std::to_string(copied) + " copied" : "");
  }

  void make_changes() {
    static const auto copy = find_operator("aten::copy_");
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      const TaskId id{i};
      if (gone_.contains(id)) {
        edit_.drop(id);
        for (const Copy& c : plan_.copies[id]) {
          edit_.insert(id, copy, {c.to, moved(c.from, plan_.slice_of), c10::IValue(false)}, {c.to});
        }
        continue;
      }
      const auto chosen = plan_.chosen.find(id);
      const bool writes = chosen != plan_.chosen.end();
      const Task& task = writes ? chosen->second : program_.task(id);
      const bool reads_moved = std::any_of(task.reads.begin(), task.reads.end(), [&](const TensorRef& ref) {
        return plan_.slice_of.contains(ref.buffer);
      });
      if (!writes && !reads_moved) continue;
      edit_.replace(id, task.op, all_moved(task.arguments), task.results);
    }
  }

  std::vector<Operand> all_moved(std::vector<Operand> operands) const {
    for (Operand& operand : operands) {
      if (auto* ref = std::get_if<TensorRef>(&operand)) *ref = moved(*ref, plan_.slice_of);
      if (auto* list = std::get_if<TensorRefList>(&operand)) {
        for (auto& element : list->refs)
          if (element) element = moved(*element, plan_.slice_of);
      }
    }
    return operands;
  }

  const Program& program_;
  bool measures_, chooses_, precise_;
  Uses uses_;
  std::vector<std::size_t> depth_;
  Edit edit_;
  Chooser chooser_;
  Plan plan_;  // of all concatenations that vanish
  std::set<TaskId> gone_;
};

Rewritten apply(Program program, const RewriteContext& context) { return ByAddress(program, context).run(); }

}  // namespace

const Rewrite kCatByAddress{
    .name = "cat_by_address",
    .summary = "parts of a concatenation are written straight into their places of the whole",
    .on_cpu = false,
    .apply = apply};

}  // namespace nimble
