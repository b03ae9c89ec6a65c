#include "nimble/kernels/iteration.h"

#include <algorithm>

#include "nimble/kernels/image_layout.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

std::vector<Dimension> dimensions_of(at::IntArrayRef shape, at::TensorList operands, std::size_t behind) {
  std::vector<Dimension> all;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    Dimension dimension{shape[d], {}};
    for (const at::Tensor& operand : operands) {
      const auto from_end = static_cast<std::int64_t>(shape.size() - d + behind);
      const bool broadcast = operand.dim() < from_end || operand.size(operand.dim() - from_end) == 1;
      dimension.strides.push_back(broadcast ? 0 : operand.stride(operand.dim() - from_end));
    }
    all.push_back(std::move(dimension));
  }
  // The last operand is a result; its order in memory is what counts.
  std::stable_sort(all.begin(), all.end(), [](const Dimension& a, const Dimension& b) {
    return a.strides.back() > b.strides.back();
  });
  std::vector<Dimension> merged;
  for (Dimension& dimension : all) {
    const auto continues = [&](const Dimension& slower) {
      for (std::size_t i = 0; i < slower.strides.size(); ++i) {
        if (slower.strides[i] != dimension.strides[i] * dimension.size) return false;
      }
      return true;
    };
    if (!merged.empty() && continues(merged.back())) {
      merged.back() = {merged.back().size * dimension.size, std::move(dimension.strides)};
    } else {
      merged.push_back(std::move(dimension));
    }
  }
  if (merged.empty()) merged.push_back({1, std::vector<std::int64_t>(operands.size(), 0)});
  return merged;
}

std::int64_t Iteration::vector(std::int64_t limit) const {
  constexpr std::int64_t kWidestLoad = 16;  // bytes
  for (const at::Tensor& operand : operands_) {
    limit = std::min(limit, kWidestLoad / static_cast<std::int64_t>(operand.element_size()));
  }
  CommonVector vector(limit);
  vector.divides(fastest().size);
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const auto stride = fastest().strides[i];
    if (stride == 0) continue;
    if (stride != 1) return 1;
    for (std::size_t d = 0; d + 1 < dimensions_.size(); ++d) vector.divides(dimensions_[d].strides[i]);
    vector.divides(address_in_elements(operands_[i]));
  }
  return vector.width();
}

std::string_view Iteration::index_type() const {
  // How far from its first element any operand is looked at; a slice reaches further than its elements count.
  std::int64_t furthest = 1;
  for (const Dimension& dimension : dimensions_) furthest *= dimension.size;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    std::int64_t last = 0;
    for (const Dimension& dimension : dimensions_) last += dimension.size * dimension.strides[i];
    furthest = std::max(furthest, last);
  }
  return furthest < (std::int64_t{1} << 31) ? "int" : "long long";
}

std::string Iteration::indices(std::size_t count, std::int64_t vector) const {
  const std::string index(index_type());
  std::string text;
  for (std::size_t d = count; d-- > 0;) {
    const bool is_fastest = d + 1 == dimensions_.size();
    const std::string size = std::to_string(is_fastest ? dimensions_[d].size / vector : dimensions_[d].size);
    text += "  const " + index + " i" + std::to_string(d) + " = " + (d == 0 ? "rest" : "rest % " + size) +
            (is_fastest ? " * " + std::to_string(vector) : "") + ";\n";
    if (d != 0) text += "  rest /= " + size + ";\n";
  }
  return text;
}

std::string Iteration::place(std::size_t operand) const {
  std::string text = "p" + std::to_string(operand);
  for (std::size_t d = 0; d < dimensions_.size(); ++d) {
    const auto stride = dimensions_[d].strides[operand];
    if (stride != 0) text += " + i" + std::to_string(d) + " * " + std::to_string(stride);
  }
  return text;
}

std::string Iteration::parameters(std::size_t inputs) const {
  std::string text;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const std::string type(device_type(operands_[i].scalar_type()));
    text += std::string(i ? ", " : "") + (i < inputs ? "const " : "") + type + "* p" + std::to_string(i);
  }
  return text;
}

std::string Iteration::waiting() const {
  std::string text;
  for (std::size_t i = 0; i < operands_.size(); ++i) text += (i ? ", p" : "p") + std::to_string(i);
  return "  after_earlier_kernels(" + text + ");\n";
}

}  // namespace nimble::kernels
