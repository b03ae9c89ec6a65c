#include "nimble/torch/rewrites/weights_first.h"

#include "nimble/torch/rewrites/uses.h"

namespace nimble {

Program with_weights_first(Program program) {
  if (program.parts != 1) return program;
  const Uses uses(program);
  std::vector<bool> comes_first(program.tasks.size());
  for (std::size_t i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    comes_first[i] = uses.makes_weights(task);
    for (const TensorRef& read : task.reads) {
      for (const TaskId writer : uses.writers(read.buffer))
        comes_first[i] = comes_first[i] && comes_first[writer.index()];
    }
  }
  std::vector<Task> tasks;
  for (const bool first : {true, false}) {
    for (std::size_t i = 0; i < program.tasks.size(); ++i) {
      if (comes_first[i] == first) tasks.push_back(std::move(program.tasks[i]));
    }
  }
  program.tasks = std::move(tasks);
  return program;
}

}  // namespace nimble
