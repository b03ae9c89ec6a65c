#pragma once

namespace nimble::cpu {

// How many threads PyTorch's kernels use when called from this thread.
int intra_op_threads();

// Changes that for this thread alone while it lives. at::set_num_threads would change it for the whole
// process.
class IntraOpThreadsGuard {
 public:
  explicit IntraOpThreadsGuard(int threads);
  ~IntraOpThreadsGuard();
  IntraOpThreadsGuard(const IntraOpThreadsGuard&) = delete;
  IntraOpThreadsGuard& operator=(const IntraOpThreadsGuard&) = delete;

 private:
  int previous_;
};

}  // namespace nimble::cpu
