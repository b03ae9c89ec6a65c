#include "nimble/kernels/image_layout.h"

#include <algorithm>

#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

std::int64_t address_in_elements(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return 0;
  if (tensor.is_meta()) return tensor.storage_offset();  // as if its memory began where all alignments do
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) /
                                   tensor.element_size());
}

ImageLayout::ImageLayout(const at::Tensor& tensor)
    : images(tensor.size(0)),
      channels(tensor.size(1)),
      height(tensor.size(2)),
      width(tensor.size(3)),
      image_stride(tensor.stride(0)),
      channel_stride(tensor.stride(1)),
      row_stride(tensor.stride(2)),
      column_stride(tensor.stride(3)),
      first(address_in_elements(tensor)) {}

std::int64_t ImageLayout::channel_vector(std::int64_t limit) const {
  if (!channels_fastest()) return 1;
  CommonVector vector(limit);
  vector.divides(channels).divides(first);
  if (images > 1) vector.divides(image_stride);
  if (height > 1) vector.divides(row_stride);
  if (width > 1) vector.divides(column_stride);
  return vector.width();
}

std::string ImageLayout::constants(std::string_view name) const {
  const std::string prefix(name);
  return constant(prefix + "_image", image_stride) + constant(prefix + "_channel", channel_stride) +
         constant(prefix + "_row", row_stride) + constant(prefix + "_column", column_stride);
}

namespace {

// One number stands for both directions.
std::int64_t across(at::IntArrayRef numbers, std::int64_t otherwise) {
  return numbers.empty() ? otherwise : numbers.back();
}
std::int64_t down(at::IntArrayRef numbers, std::int64_t otherwise) {
  return numbers.empty() ? otherwise : numbers.front();
}

}  // namespace

Window::Window(at::IntArrayRef size, at::IntArrayRef stride, at::IntArrayRef padding,
               at::IntArrayRef dilation)
    : height(down(size, 1)),
      width(across(size, 1)),
      stride_height(down(stride, height)),
      stride_width(across(stride, width)),
      padding_height(down(padding, 0)),
      padding_width(across(padding, 0)),
      dilation_height(down(dilation, 1)),
      dilation_width(across(dilation, 1)) {}

std::int64_t Window::rows_of(std::int64_t rows) const {
  return (rows + 2 * padding_height - (height - 1) * dilation_height - 1) / stride_height + 1;
}
std::int64_t Window::columns_of(std::int64_t columns) const {
  return (columns + 2 * padding_width - (width - 1) * dilation_width - 1) / stride_width + 1;
}

std::string Window::constants() const {
  return constant("kernel_height", height) + constant("kernel_width", width) +
         constant("stride_height", stride_height) + constant("stride_width", stride_width) +
         constant("padding_height", padding_height) + constant("padding_width", padding_width) +
         constant("dilation_height", dilation_height) + constant("dilation_width", dilation_width);
}

std::string index_type(std::initializer_list<std::int64_t> elements) {
  const bool fits = std::max(elements) < (std::int64_t{1} << 30);
  return std::string("using Index = ") + (fits ? "int" : "long long") + ";\n";
}

}  // namespace nimble::kernels
