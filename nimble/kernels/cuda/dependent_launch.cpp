#include "nimble/kernels/cuda/dependent_launch.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace nimble::kernels {
namespace {

constexpr int kFirstArch = 90;

bool wanted() {
  const char* value = std::getenv("NIMBLE_DEPENDENT_LAUNCH");
  return value == nullptr || std::string_view(value) != "0";
}

std::atomic<bool> given_up = false;
thread_local int without = 0;
thread_local unsigned long long launches = 0;

}  // namespace

bool launches_dependently(int arch) {
  static const bool is_wanted = wanted();
  return is_wanted && arch >= kFirstArch && without == 0 && !given_up;
}

unsigned long long dependent_launches() { return launches; }
void count_dependent_launch() { ++launches; }

void give_up_dependent_launches() { given_up = true; }

WithoutDependentLaunches::WithoutDependentLaunches() { ++without; }
WithoutDependentLaunches::~WithoutDependentLaunches() { --without; }

}  // namespace nimble::kernels
