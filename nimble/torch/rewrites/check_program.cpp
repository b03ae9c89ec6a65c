#include "nimble/torch/rewrites/check_program.h"

#include <algorithm>
#include <span>
#include <vector>

#include "nimble/core/error.h"
#include "nimble/torch/operator_facts.h"

namespace nimble {
namespace {

class Check {
 public:
  Check(const Program& program, std::string_view rewrite)
      : program_(program), rewrite_(rewrite), written_(program.buffers.size()) {}

  void tasks() {
    for (std::uint32_t i = 0; i < program_.tasks.size(); ++i) {
      const Task& task = program_.tasks[i];
      const std::string name = task_name(program_, TaskId{i});
      signature(task, name);
      for (const TensorRef& ref : task.reads) {
        place(ref, name);
        if (!any_lies_in(ref.buffer, task.writes) && !is_filled(ref))
          fail(name + " reads " + to_string(ref) + " before anything was written there");
      }
      for (const TensorRef& ref : task.writes) {
        place(ref, name);
        // What a task makes rather than fills is a tensor of its own.
        if (!any_lies_in(ref.buffer, task.reads) && !written_[ref.buffer.index()].empty())
          fail(name + " makes " + to_string(ref) + " where another task wrote before");
      }
      for (const TensorRef& ref : task.writes) written_[ref.buffer.index()].push_back(ref);
    }
  }

  void outputs(const Program& before) {
    if (program_.outputs.size() != before.outputs.size()) fail("the program has another number of results");
    for (std::size_t i = 0; i < before.outputs.size(); ++i) {
      const TensorRef& now = program_.outputs[i].ref;
      const TensorRef& then = before.outputs[i].ref;
      place(now, "result " + std::to_string(i));
      if (!is_filled(now)) fail("result " + std::to_string(i) + " is never made");
      if (now.sizes != then.sizes || now.strides != then.strides || now.dtype != then.dtype)
        fail("result " + std::to_string(i) + " is " + to_string(now) + " instead of " + to_string(then));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error("[nimble::rewrite] " + std::string(rewrite_) +
                " made a program that cannot be right: " + why);
  }

  static bool any_lies_in(BufferId buffer, std::span<const TensorRef> refs) {
    return std::ranges::any_of(refs, [&](const TensorRef& ref) { return ref.buffer == buffer; });
  }

  // Whether enough was written to it to fill it, by one task or slice by slice. What is wrong by more than a
  // count shows when the program runs.
  bool is_filled(const TensorRef& ref) const {
    const BufferKind kind = program_.buffer(ref.buffer).kind;
    if (kind != BufferKind::kInternal && kind != BufferKind::kScratch) return true;
    const std::uint64_t wanted = bytes_of(ref);
    std::uint64_t found = 0;
    for (const TensorRef& written : written_[ref.buffer.index()]) {
      if (found >= wanted) break;
      if (may_overlap(written, ref)) found += bytes_of(written);
    }
    return found >= wanted;
  }

  // An element that is looked at many times counts once.
  static std::uint64_t bytes_of(const TensorRef& ref) {
    std::uint64_t bytes = c10::elementSize(ref.dtype);
    for (std::size_t d = 0; d < ref.sizes.size(); ++d) {
      if (ref.strides[d] != 0 || ref.sizes[d] == 0) bytes *= static_cast<std::uint64_t>(ref.sizes[d]);
    }
    const ByteRange range = byte_range(ref);
    return std::min(bytes, range.end - range.begin);
  }

  void signature(const Task& task, const std::string& name) const {
    const auto& schema = task.op.schema();
    if (task.arguments.size() != schema.arguments().size())
      fail(name + " takes " + std::to_string(schema.arguments().size()) + " arguments and was given " +
           std::to_string(task.arguments.size()));
    if (task.results.size() != schema.returns().size())
      fail(name + " has " + std::to_string(schema.returns().size()) + " results, not " +
           std::to_string(task.results.size()));
    for (std::size_t i = 0; i < task.arguments.size(); ++i) {
      const c10::Argument& wanted = schema.arguments()[i];
      const c10::TypePtr given = type_of(task.arguments[i]);
      const bool is_number =
          *given == *c10::BoolType::get() && c10::NumberType::get()->isSubtypeOf(*wanted.type());
      if (!is_number && !given->isSubtypeOf(*wanted.type()))
        fail(name + " was given a " + given->repr_str() + " for its argument " + wanted.name() +
             ", which is a " + wanted.type()->repr_str());
    }
  }

  static c10::TypePtr type_of(const Operand& operand) {
    if (std::holds_alternative<TensorRef>(operand)) return c10::TensorType::get();
    if (const auto* list = std::get_if<TensorRefList>(&operand)) {
      return list->of_optionals ? c10::ListType::create(c10::OptionalType::ofTensor())
                                : c10::ListType::ofTensors();
    }
    const auto& value = std::get<c10::IValue>(operand);
    const bool is_absent_tensor = value.isTensor();  // C++ callers pass an undefined one
    return is_absent_tensor ? c10::TensorType::get() : value.type();
  }

  void place(const TensorRef& ref, const std::string& name) const {
    if (ref.buffer.index() >= program_.buffers.size()) fail(name + " names a buffer that does not exist");
    if (byte_range(ref).end > program_.buffer(ref.buffer).bytes)
      fail(name + " looks at " + to_string(ref) + ", beyond the end of its buffer");
  }

  const Program& program_;
  std::string_view rewrite_;
  std::vector<std::vector<TensorRef>> written_;  // by buffer
};

}  // namespace

void check_program(const Program& program, const Program& before, std::string_view rewrite) {
  Check check(program, rewrite);
  check.tasks();
  check.outputs(before);
}

}  // namespace nimble
