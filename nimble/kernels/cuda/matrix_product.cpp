#include "nimble/kernels/cuda/matrix_product.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "nimble/core/error.h"

namespace nimble::kernels {
namespace {

constexpr std::size_t kMostWorkspace = std::size_t{8} << 20;

template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Destroy {
  void operator()(std::remove_pointer_t<Handle>* handle) const { destroy(handle); }
};
using Description = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>,
                                    Destroy<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>,
                               Destroy<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                                   Destroy<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

cudaDataType_t data_type(at::ScalarType dtype) {
  return dtype == at::kHalf ? CUDA_R_16F : dtype == at::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

// cuBLAS counts columns first: there the matrices look transposed, and the product is yᵀ = w xᵀ.
Layout layout(at::ScalarType dtype, std::int64_t rows, std::int64_t columns, std::int64_t step) {
  cublasLtMatrixLayout_t made = nullptr;
  TORCH_CUDABLAS_CHECK(cublasLtMatrixLayoutCreate(&made, data_type(dtype), columns, rows, step));
  return Layout(made);
}

Description description(const MatrixProduct& p, const void* bias) {
  cublasLtMatmulDesc_t made = nullptr;
  const bool tf32 = p.dtype == at::kFloat && p.allow_tf32;
  TORCH_CUDABLAS_CHECK(
      cublasLtMatmulDescCreate(&made, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Description owner(made);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    TORCH_CUDABLAS_CHECK(cublasLtMatmulDescSetAttribute(made, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
  if (bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  return owner;
}

std::uint32_t alignment(const void* pointer) {
  std::uint32_t bytes = 256;
  while (reinterpret_cast<std::uintptr_t>(pointer) % bytes != 0) bytes /= 2;
  return bytes;
}

// What cuBLASLt proposes for a product, kept for the next time: asking takes longer than the product.
cublasLtMatmulHeuristicResult_t proposal(cublasLtHandle_t handle, const MatrixProduct& p,
                                         const MatrixPointers& at, cublasLtMatmulDesc_t description,
                                         const std::array<cublasLtMatrixLayout_t, 4>& layouts) {
  using Key =
      std::tuple<int, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                 std::int64_t, at::ScalarType, bool, int, bool, bool, std::array<std::uint32_t, 4>>;
  static std::mutex mutex;
  static std::map<Key, std::vector<cublasLtMatmulHeuristicResult_t>> known;
  constexpr int kMostProposals = 8;

  int device = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  const std::array<std::uint32_t, 4> aligned = {alignment(at.w), alignment(at.x),
                                                alignment(at.c ? at.c : at.y), alignment(at.y)};
  const Key key{device,   p.rows,  p.columns,    p.inner,    p.x_step,        p.w_step,           p.c_step,
                p.y_step, p.dtype, p.allow_tf32, p.epilogue, at.c != nullptr, at.bias != nullptr, aligned};
  const std::lock_guard lock(mutex);
  auto& proposals = known[key];
  if (proposals.empty()) {
    cublasLtMatmulPreference_t made = nullptr;
    TORCH_CUDABLAS_CHECK(cublasLtMatmulPreferenceCreate(&made));
    const Preference preference(made);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      TORCH_CUDABLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned[0]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned[1]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned[2]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned[3]);
    proposals.resize(kMostProposals);
    int count = 0;
    const auto status =
        cublasLtMatmulAlgoGetHeuristic(handle, description, layouts[0], layouts[1], layouts[2], layouts[3],
                                       made, kMostProposals, proposals.data(), &count);
    proposals.resize(status == CUBLAS_STATUS_SUCCESS ? count : 0);
  }
  if (p.candidate < 0 || p.candidate >= static_cast<std::int64_t>(proposals.size()))
    throw Error("[nimble::pointwise_convolution] cuBLASLt proposes " + std::to_string(proposals.size()) +
                " ways for this product, there is no number " + std::to_string(p.candidate));
  return proposals[static_cast<std::size_t>(p.candidate)];
}

}  // namespace

void multiply(const MatrixProduct& p, const MatrixPointers& at) {
  const auto handle = at::cuda::getCurrentCUDABlasLtHandle();
  const auto product = description(p, at.bias);
  const auto w = layout(p.dtype, p.columns, p.inner, p.w_step),
             x = layout(p.dtype, p.rows, p.inner, p.x_step), c = layout(p.dtype, p.rows, p.columns, p.c_step),
             y = layout(p.dtype, p.rows, p.columns, p.y_step);
  const auto chosen = proposal(handle, p, at, product.get(), {w.get(), x.get(), c.get(), y.get()});
  const at::Tensor workspace =
      at::empty({static_cast<std::int64_t>(chosen.workspaceSize)}, at::device(at::kCUDA).dtype(at::kByte));
  const float one = 1.0f, beta = at.c ? 1.0f : 0.0f;
  TORCH_CUDABLAS_CHECK(cublasLtMatmul(handle, product.get(), &one, at.w, w.get(), at.x, x.get(), &beta,
                                      at.c ? at.c : at.y, c.get(), at.y, y.get(), &chosen.algo,
                                      workspace.mutable_data_ptr(), chosen.workspaceSize,
                                      c10::cuda::getCurrentCUDAStream()));
}

}  // namespace nimble::kernels
