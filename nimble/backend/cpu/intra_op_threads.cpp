#include "nimble/backend/cpu/intra_op_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace nimble::cpu {
namespace {

// PyTorch's wheels carry an OpenMP runtime of their own; linking another would give the process two. So the
// runtime that PyTorch has already loaded is asked by name. MKL keeps a per-thread setting beside it.
using SetThreads = void (*)(int);
using SetThreadsLocal = int (*)(int);

template <class Function>
Function loaded(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

void set_for_this_thread(int threads) {
  static const auto omp_set = loaded<SetThreads>("omp_set_num_threads");
  static const auto mkl_set = loaded<SetThreadsLocal>("MKL_Set_Num_Threads_Local");
  if (omp_set) omp_set(threads);
  if (mkl_set) mkl_set(threads);
}

}  // namespace

int intra_op_threads() { return at::get_num_threads(); }

// Asking first makes PyTorch set this thread up, which would otherwise overwrite our setting later.
IntraOpThreadsGuard::IntraOpThreadsGuard(int threads) : previous_(intra_op_threads()) {
  set_for_this_thread(threads);
}
IntraOpThreadsGuard::~IntraOpThreadsGuard() { set_for_this_thread(previous_); }

}  // namespace nimble::cpu
