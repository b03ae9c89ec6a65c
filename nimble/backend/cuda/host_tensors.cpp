#include "nimble/backend/cuda/host_tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string_view>

#include "nimble/torch/random_states.h"
#include "nimble/torch/record_error.h"

namespace nimble::cuda {
namespace {

bool is_one_of(const Task& task, std::span<const std::string_view> names) {
  const std::string_view name = task.op.operator_name().name;
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool copies(const Task& task) {
  static constexpr std::array<std::string_view, 3> kCopies = {"aten::copy_", "aten::_to_copy", "aten::copy"};
  return is_one_of(task, kCopies);
}

bool indexes(const Task& task) {
  static constexpr std::array<std::string_view, 5> kIndexing = {
      "aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index"};
  return is_one_of(task, kIndexing);
}

// By buffer: whether it is moved to the GPU before the program is bound.
std::vector<bool> moved_to_device(const Program& program) {
  std::vector<bool> moved(program.buffers.size());
  for (std::size_t b = 0; b < moved.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    const bool candidate = buffer.kind == BufferKind::kInput || buffer.kind == BufferKind::kConstant;
    moved[b] = buffer.device.is_cpu() && candidate && !buffer.returned;
  }
  std::vector<bool> read(program.buffers.size());
  for (const Task& task : program.tasks) {
    const bool writes_to_device =
        std::any_of(task.writes.begin(), task.writes.end(),
                    [&](const TensorRef& ref) { return program.buffer(ref.buffer).device.is_cuda(); });
    for (const TensorRef& ref : task.reads) {
      const auto b = ref.buffer.index();
      const bool constant_index = indexes(task) && program.buffers[b].kind == BufferKind::kConstant;
      read[b] = true;
      if (!writes_to_device || !(copies(task) || constant_index)) moved[b] = false;
    }
    for (const TensorRef& ref : task.writes) {
      if (program.buffer(ref.buffer).device.is_cpu()) moved[ref.buffer.index()] = false;
    }
  }
  for (std::size_t b = 0; b < moved.size(); ++b) moved[b] = moved[b] && read[b];
  return moved;
}

[[noreturn]] void refuse(const Program& program, const Task& task, std::string why, std::string advice) {
  throw TaskRefused(
      Refusal{task.op.operator_name().name, std::move(why), std::move(advice), task.where}.message(),
      static_cast<std::size_t>(&task - program.tasks.data()));
}

}  // namespace

void check_host_tensors(const Program& program) {
  if (const auto refusal = takes_random_state_from_elsewhere(program)) throw RecordError(refusal->message());
  const c10::Device device = program.device();
  const std::vector<bool> moved = moved_to_device(program);
  for (const Task& task : program.tasks) {
    bool on_device = false;
    const auto each_ref = [&](auto&& visit) {
      for (const TensorRef& ref : task.reads) visit(ref);
      for (const TensorRef& ref : task.writes) visit(ref);
    };
    each_ref([&](const TensorRef& ref) {
      const c10::Device place = program.buffer(ref.buffer).device;
      if (place.is_cpu()) return;
      on_device = true;
      if (place != device) {
        refuse(program, task,
               "it uses a tensor on " + place.str() + " in a function that runs on " + device.str(),
               "Compile one function for each device");
      }
    });
    if (!on_device) {
      refuse(
          program, task, "it computes on the CPU in a function that runs on " + device.str(),
          "Move its tensors to the GPU, or compute it before the compiled function and pass the result in");
    }
    each_ref([&](const TensorRef& ref) {
      if (!program.buffer(ref.buffer).device.is_cpu() || moved[ref.buffer.index()]) return;
      if (copies(task)) {
        refuse(program, task, "it copies between host and GPU memory",
               "Copy before or after the compiled function, or pass the host tensor in as an argument");
      }
      if (!ref.sizes.empty()) {
        refuse(
            program, task, "it mixes a CPU tensor " + to_string(ref) + " with tensors on " + device.str(),
            "Move the CPU tensor to the GPU; only zero-dimensional CPU tensors can be used there as numbers");
      }
    });
  }
  for (const Output& output : program.outputs) {
    const Buffer& buffer = program.buffer(output.ref.buffer);
    if (!buffer.device.is_cpu() || buffer.kind != BufferKind::kInternal) continue;
    throw RecordError("[nimble::record] a result lies on the CPU in a function that runs on " + device.str() +
                      ": its values would stay those of the recording. Leave it out of the results");
  }
}

Program move_host_tensors(Program program) {
  const std::vector<bool> moved = moved_to_device(program);
  const c10::Device device = program.device();
  for (std::size_t b = 0; b < moved.size(); ++b) {
    if (!moved[b]) continue;
    Buffer& buffer = program.buffers[b];
    buffer.device = device;
    if (!buffer.outside.defined()) continue;
    buffer.outside = all_bytes_of(buffer.outside.storage()).to(device);
    buffer.address = buffer.outside.mutable_data_ptr();
  }
  return program;
}

HostScalars::HostScalars(const Program& program) {
  std::map<BufferId, ByteRange> read;
  for (const Task& task : program.tasks) {
    for (const TensorRef& ref : task.reads) {
      const Buffer& buffer = program.buffer(ref.buffer);
      const bool can_change = buffer.kind == BufferKind::kInput || buffer.kind == BufferKind::kExternal;
      if (!buffer.device.is_cpu() || !can_change) continue;
      const ByteRange range = byte_range(ref);
      const auto [known, first] = read.try_emplace(ref.buffer, range);
      known->second = {std::min(known->second.begin, range.begin), std::max(known->second.end, range.end)};
    }
  }
  for (const auto& [id, range] : read) {
    Source source{.buffer = id, .range = range, .values = std::vector<char>(range.end - range.begin)};
    if (const Buffer& buffer = program.buffer(id); buffer.kind == BufferKind::kExternal) {
      source.outside = static_cast<const char*>(buffer.address) + range.begin;
    } else {
      const auto input = std::find_if(program.inputs.begin(), program.inputs.end(),
                                      [&](const TensorRef& ref) { return ref.buffer == id; });
      source.input = input - program.inputs.begin();
      const auto start = input->offset * static_cast<std::int64_t>(c10::elementSize(input->dtype));
      source.shift = static_cast<std::ptrdiff_t>(range.begin) - start;
    }
    sources_.push_back(std::move(source));
  }
}

void HostScalars::place(BoundProgram& bound) {
  for (Source& source : sources_) {
    if (!source.outside) bound.point(source.buffer, source.values.data() - source.range.begin);
  }
}

bool HostScalars::update(std::span<const at::Tensor> inputs) {
  bool changed = !std::exchange(known_, true) && !sources_.empty();
  for (Source& source : sources_) {
    const char* now = source.outside
                          ? source.outside
                          : static_cast<const char*>(inputs[source.input].const_data_ptr()) + source.shift;
    if (std::memcmp(source.values.data(), now, source.values.size()) == 0) continue;
    std::memcpy(source.values.data(), now, source.values.size());
    changed = true;
  }
  return changed;
}

}  // namespace nimble::cuda
