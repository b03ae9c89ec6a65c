#include "nimble/engine/times_on_disk.h"

#include <charconv>

#include "nimble/backend/executable.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble {
namespace {

class TimesOnDisk final : public KnownTimes {
 public:
  TimesOnDisk(kernels::DiskCache cache, std::string prefix)
      : prefix_(std::move(prefix)), cache_(std::move(cache)) {}

  std::optional<Nanoseconds> find(const std::string& tasks) const override {
    const auto text = cache_.load(prefix_ + tasks);
    if (!text) return {};
    Nanoseconds time{};
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), time);
    return error == std::errc() && end == text->data() + text->size() ? std::optional(time) : std::nullopt;
  }

  void add(const std::string& tasks, Nanoseconds time) override {
    cache_.store(prefix_ + tasks, std::to_string(time));
  }

 private:
  std::string prefix_;
  kernels::DiskCache cache_;
};

}  // namespace

std::shared_ptr<KnownTimes> times_on_disk(c10::Device device) {
  const std::string machine = backend_for(device).measured_on(device);
  return machine.empty() ? nullptr : times_in(kernels::DiskCache::of_user(), machine, kernels::fingerprint());
}

std::shared_ptr<KnownTimes> times_in(kernels::DiskCache cache, std::string_view machine,
                                     std::string_view kernels) {
  std::string prefix = "time\n" + std::string(machine) + "nimble " + std::string(kernels) + '\n';
  return std::make_shared<TimesOnDisk>(std::move(cache), std::move(prefix));
}

}  // namespace nimble
