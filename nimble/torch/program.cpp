#include "nimble/torch/program.h"

#include <ATen/core/class_type.h>

#include <sstream>

namespace nimble {
namespace {

std::string buffer_name(const Program& program, BufferId id) {
  static constexpr const char* kPrefix[] = {"input", "extern", "const", "%", "scratch", "escaped", "derived"};
  return kPrefix[static_cast<int>(program.buffer(id).kind)] + std::to_string(id.value);
}

void print(std::ostream& out, const Program& program, const Operand& operand) {
  const auto print_ref = [&](const TensorRef& ref) {
    out << buffer_name(program, ref.buffer) << ':' << to_string(ref);
  };
  if (const auto* value = std::get_if<c10::IValue>(&operand)) {
    if (value->isTensor()) {
      out << (value->toTensor().defined() ? "number" : "none");
    } else if (value->isObject()) {
      out << value->toObjectRef().type()->name()->name();
    } else {
      out << *value;
    }
  } else if (const auto* ref = std::get_if<TensorRef>(&operand)) {
    print_ref(*ref);
  } else {
    out << '[';
    const char* comma = "";
    for (const auto& element : std::get<TensorRefList>(operand).refs) {
      out << std::exchange(comma, ", ");
      if (element) {
        print_ref(*element);
      } else {
        out << "none";
      }
    }
    out << ']';
  }
}

void print(std::ostream& out, const Program& program, const std::vector<Operand>& operands) {
  const char* comma = "";
  for (const auto& operand : operands) {
    out << std::exchange(comma, ", ");
    print(out, program, operand);
  }
}

}  // namespace

c10::Device Program::device() const {
  for (const auto& buffer : buffers) {
    if (!buffer.device.is_cpu()) return buffer.device;
  }
  return c10::kCPU;
}

std::string task_name(const Program& program, TaskId task) {
  std::string name = program.task(task).op.operator_name().name;
  if (const auto colons = name.find("::"); colons != std::string::npos && name.starts_with("aten")) {
    name.erase(0, colons + 2);
  }
  return name + '#' + std::to_string(task.value);
}

std::string to_string(const Program& program) {
  std::ostringstream out;
  out << "program(";
  const char* comma = "";
  for (const auto& input : program.inputs) {
    out << std::exchange(comma, ", ") << buffer_name(program, input.buffer) << ':' << to_string(input);
  }
  out << ")\n";
  for (std::uint32_t i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    out << "  ";
    print(out, program, task.results);
    out << " = " << task_name(program, TaskId{i}) << '(';
    print(out, program, task.arguments);
    out << ')';
    if (!task.where.empty()) out << "  # " << task.where;
    out << '\n';
  }
  out << "  return ";
  comma = "";
  for (const auto& output : program.outputs) {
    out << std::exchange(comma, ", ") << buffer_name(program, output.ref.buffer) << ':'
        << to_string(output.ref);
  }
  out << '\n';
  return out.str();
}

}  // namespace nimble
