#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string>
#include <string_view>

namespace nimble::kernels {

// A batch of images, [images, channels, height, width], as a kernel sees it.
struct ImageLayout {
  std::int64_t images = 0, channels = 0, height = 0, width = 0;
  std::int64_t image_stride = 0, channel_stride = 0, row_stride = 0, column_stride = 0;

  std::int64_t first = 0;  // see address_in_elements

  explicit ImageLayout(const at::Tensor& tensor);

  bool channels_fastest() const { return channel_stride == 1; }
  std::int64_t numel() const { return images * channels * height * width; }
  // From the first to the last, with what lies in between.
  std::int64_t elements() const {
    return images * image_stride + channels * channel_stride + height * row_stride + width * column_stride;
  }

  // The widest vector of neighbouring channels, at most `limit`, that lies aligned everywhere; 1 where
  // channels are not neighbours.
  std::int64_t channel_vector(std::int64_t limit) const;

  // Its strides as constants: "x_image", "x_channel", "x_row", "x_column".
  std::string constants(std::string_view name) const;
};

// The address of a tensor's first element, counted in elements; where it has no memory, how far from the
// beginning of what it is a slice of.
std::int64_t address_in_elements(const at::Tensor& tensor);

// Where rows and columns go: the parameters of a convolution or a pooling.
struct Window {
  std::int64_t height = 0, width = 0;
  std::int64_t stride_height = 1, stride_width = 1;
  std::int64_t padding_height = 0, padding_width = 0;
  std::int64_t dilation_height = 1, dilation_width = 1;

  Window(at::IntArrayRef size, at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation);
  Window() = default;

  // How many results it gives of so many rows and columns.
  std::int64_t rows_of(std::int64_t rows) const;
  std::int64_t columns_of(std::int64_t columns) const;

  std::string constants() const;
};

// "using Index = int;", or wider where something has more elements than that counts.
std::string index_type(std::initializer_list<std::int64_t> elements);

}  // namespace nimble::kernels
