// One product.
extern "C" __global__ void __launch_bounds__(threads)
    nimble_kernel(const T* x, const T* weight, const T* bias, const T* residual, const T* filters,
                  const T* filter_bias, T* y, long long y_step) {
  after_earlier_kernels(x, weight, bias, residual, filters, filter_bias, y);
  make_tile({weight, bias, y, static_cast<Index>(y_step), channels}, x, residual, filters, filter_bias,
            blockIdx.x);
}
