#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace nimble {

// Settings of PyTorch that decide which kernels run and are not arguments of any operator.
struct Settings {
  bool grad_mode = false;
  bool anomaly_mode = false;  // of autograd: looks for NaN in gradients, on the host
  bool autocast_cpu = false, autocast_cuda = false;
  at::ScalarType autocast_cpu_dtype = at::kFloat, autocast_cuda_dtype = at::kFloat;
  bool tf32_products = false, tf32_convolutions = false, tf32_recurrences = false;
  at::CuBLASReductionOption sums_in_half = {}, sums_in_bfloat = {};
  bool accumulates_in_half = false;
  bool cudnn_enabled = false, cudnn_benchmark = false, cudnn_deterministic = false;
  bool deterministic = false;
  bool flash_attention = false, efficient_attention = false, math_attention = false, cudnn_attention = false;
  int threads = 0;
  at::ScalarType default_dtype = at::kFloat;

  static Settings here();
  friend bool operator==(const Settings&, const Settings&) = default;
};

// What a recorded program holds for. `variant` stands for everything that is no tensor: the caller numbers
// the structures and values of its other arguments.
class Signature {
 public:
  Signature(std::span<const at::Tensor> inputs, std::int64_t variant);

  // Whether a call with these inputs, here and now, is of this signature. No allocation, some tens of
  // nanoseconds for each input.
  bool matches(std::span<const at::Tensor> inputs, std::int64_t variant, const Settings& settings) const;

  friend bool operator==(const Signature&, const Signature&) = default;

  // "(f32[1, 3, 224, 224])".
  std::string to_string() const;

 private:
  struct Input {
    at::DimVector sizes = {}, strides = {};
    at::ScalarType dtype;  // Undefined: so is the tensor, and nothing else is known of it
    c10::Device device;
    bool requires_grad = false, conjugate = false, negative = false;
    // The first input that shares this one's storage (itself if none does before it), and how many bytes lie
    // between.
    std::size_t shares_with = 0;
    std::int64_t distance = 0;
    // How the memory of a tensor on a GPU is aligned, as far as kernels look at it: see signature.cpp. 0
    // elsewhere.
    std::uint32_t alignment = 0;

    static Input of(std::span<const at::Tensor> inputs, std::size_t i);
    bool matches(std::span<const at::Tensor> inputs, std::size_t i) const;
    friend bool operator==(const Input&, const Input&) = default;
  };
  std::vector<Input> inputs_;
  std::int64_t variant_;
  Settings settings_;
};

}  // namespace nimble
