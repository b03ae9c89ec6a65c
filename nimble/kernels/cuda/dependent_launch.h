#pragma once

namespace nimble::kernels {

// Kernels of ours may be launched while those before them on their stream still run: they wait for them
// inside (after_earlier_kernels in device/instructions.cu), and the GPU has prepared them by then. What such
// a kernel waits for are all that it depends on, on its own stream or by events, in a graph or not: those
// that are no kernels, and kernels of others that say nothing, end before it is launched.
//
// On by default where the GPU can (sm_90); NIMBLE_DEPENDENT_LAUNCH=0 in the environment turns it off.

// Whether this thread launches so, on a GPU of this architecture (90 is sm_90).
bool launches_dependently(int arch);

// How many kernels this thread has launched so.
unsigned long long dependent_launches();
void count_dependent_launch();

// From now on nobody does: this system cannot.
void give_up_dependent_launches();

// While one exists on a thread, that thread does not.
class WithoutDependentLaunches {
 public:
  WithoutDependentLaunches();
  ~WithoutDependentLaunches();
  WithoutDependentLaunches(const WithoutDependentLaunches&) = delete;
  WithoutDependentLaunches& operator=(const WithoutDependentLaunches&) = delete;
};

}  // namespace nimble::kernels
