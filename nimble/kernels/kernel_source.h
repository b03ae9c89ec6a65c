#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nimble::kernels {

// A generated kernel and how it is launched: one dimension of blocks, one of threads; pointers are its
// arguments, and numbers that need no kernel of their own.
struct KernelSource {
  static constexpr const char* kName = "nimble_kernel";  // of the function in every source

  std::string text;
  unsigned blocks = 0;
  unsigned threads = 0;
  // Whether the compiler may contract a*b+c. ATen's kernels were compiled so, each for itself; work of
  // several of them in one kernel must not be contracted across their borders, or its bits differ from
  // eager's.
  bool contract = false;
  std::vector<std::int64_t> numbers = {};  // arguments behind the pointers
};

// Puts a kernel's own lines behind what every kernel can use: element types, vectors, pointwise functions.
std::string with_prelude(std::string_view constants, std::string_view kernel);

// Another one for every version of Nimble and every change of what kernels are made of: what was measured of
// the kernels of one says nothing of those of another.
std::string_view fingerprint();

// "constexpr Index name = value;" and "using name = type;", the parameters that a kernel is compiled for.
std::string constant(std::string_view name, std::int64_t value);
std::string type_alias(std::string_view name, c10::ScalarType type);

// How device code names an element type; empty for types that no kernel handles.
std::string_view device_type(c10::ScalarType type);

// The largest power of two that divides all the numbers it is given, at most `limit`.
class CommonVector {
 public:
  explicit CommonVector(std::int64_t limit) : width_(limit) {}
  CommonVector& divides(std::int64_t number) {
    while (width_ > 1 && number % width_ != 0) width_ /= 2;
    return *this;
  }
  std::int64_t width() const { return width_; }

 private:
  std::int64_t width_;
};

// Small work is spread over the whole chip rather than packed into few threads: the widest vector, at most
// `widest`, that leaves a thread or more for each lane of a large GPU.
std::int64_t spread_vector(std::int64_t elements, std::int64_t widest);

// How many threads make a block, so that little work still gives every part of the chip one.
unsigned block_size(std::int64_t work);
// Blocks of that size for one thread each.
unsigned block_count(std::int64_t work);

}  // namespace nimble::kernels
