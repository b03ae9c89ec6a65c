#pragma once

#include <cudnn_graph.h>

#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace nimble::kernels::cudnn {

// Throws Error, naming what was tried and what cuDNN says of it.
void check(cudnnStatus_t status, const char* what);

// How cuDNN calls the type of an attribute's value.
constexpr cudnnBackendAttributeType_t type_of(std::int64_t) { return CUDNN_TYPE_INT64; }
constexpr cudnnBackendAttributeType_t type_of(bool) { return CUDNN_TYPE_BOOLEAN; }
constexpr cudnnBackendAttributeType_t type_of(float) { return CUDNN_TYPE_FLOAT; }
constexpr cudnnBackendAttributeType_t type_of(double) { return CUDNN_TYPE_DOUBLE; }
constexpr cudnnBackendAttributeType_t type_of(void*) { return CUDNN_TYPE_VOID_PTR; }
constexpr cudnnBackendAttributeType_t type_of(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnDataType_t) { return CUDNN_TYPE_DATA_TYPE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnConvolutionMode_t) { return CUDNN_TYPE_CONVOLUTION_MODE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnPointwiseMode_t) { return CUDNN_TYPE_POINTWISE_MODE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnBackendHeurMode_t) { return CUDNN_TYPE_HEUR_MODE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnBackendNumericalNote_t) {
  return CUDNN_TYPE_NUMERICAL_NOTE;
}

// One of the objects that cuDNN's graphs and plans are made of: made, given its attributes, and finished.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const T> values) {
    set(name, type_of(T{}), values.size(), values.data());
    return *this;
  }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    return set(name, std::span<const T>(values));
  }
  template <class T>
  requires(std::is_scalar_v<T>) Descriptor& set(cudnnBackendAttributeName_t name, T value) {
    return set(name, std::span<const T>(&value, 1));
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& other);
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const Descriptor> others);

  // Throws Error where cuDNN cannot do what the attributes say.
  Descriptor& finish();

  template <class T>
  std::vector<T> get(cudnnBackendAttributeName_t name, std::size_t most) const {
    std::vector<T> values(most);
    values.resize(get(name, type_of(T{}), most, values.data()));
    return values;
  }
  // Other objects that it made or consists of.
  std::vector<Descriptor> get(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                              std::size_t most) const;

  cudnnBackendDescriptor_t handle() const { return handle_.get(); }

 private:
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
           const void* values);
  std::size_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t most,
                  void* values) const;

  struct Destroy {
    void operator()(cudnnBackendDescriptor_t handle) const { cudnnBackendDestroyDescriptor(handle); }
  };
  std::unique_ptr<std::remove_pointer_t<cudnnBackendDescriptor_t>, Destroy> handle_;
};

}  // namespace nimble::kernels::cudnn
