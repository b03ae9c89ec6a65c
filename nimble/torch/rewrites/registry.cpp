#include "nimble/torch/rewrites/registry.h"

#include <algorithm>
#include <numeric>

#include "nimble/core/error.h"
#include "nimble/torch/rewrites/all.h"

namespace nimble {
namespace {

// How many letters have to be put in, taken out or changed to make one word the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({changed, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

[[noreturn]] void refuse_name(const std::string& name) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string_view> names = {"default", "none"};
  for (const Rewrite* rewrite : all_rewrites()) names.push_back(rewrite->name);
  std::stable_sort(names.begin(), names.end(), [&](std::string_view a, std::string_view b) {
    return distance(name, a) < distance(name, b);
  });
  std::string nearest;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    nearest += (i ? ", " : "") + std::string(names[i]);
  }
  throw Error("[nimble::rewrite] there is no rewrite named \"" + name + "\". The nearest are " + nearest +
              "; nimble.rewrites() lists all");
}

}  // namespace

std::span<const Rewrite* const> all_rewrites() {
  // What makes patterns visible comes first, what only tidies up comes last.
  static const Rewrite* const kAll[] = {
      &kOutOfPlace,        &kCommonSubexpressions,
      &kUnreadWork,        &kNormThroughCat,
      &kFoldBatchNorm,     &kReluThroughCat,
      &kFoldPadding,       &kChannelsLast,
      &kFuseConvolution,   &kSeparableConvolution,
      &kPooling,           &kMkldnnConvolution,
      &kScaleBatchNorm,    &kOpenAttention,
      &kMergeLinears,      &kMatrixLinear,
      &kLinearActivation,  &kFuseRows,
      &kFuseBatchNorm,     &kUnneededCopies,
      &kFusePointwise,     &kFuseForeach,
      &kGroupConvolutions, &kSumOfProducts,
      &kCatByAddress,      &kMkldnnLinear,
      &kPointwiseBlocks,   &kWeightsOnce,
  };
  return kAll;
}

std::vector<const Rewrite*> rewrites_named(std::span<const std::string> names) {
  std::vector<bool> wanted(all_rewrites().size());
  for (const std::string& name : names) {
    if (name == "none") continue;
    bool known = name == "default";
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const bool meant = name == "default" || all_rewrites()[i]->name == name;
      wanted[i] = wanted[i] || meant;
      known |= meant;
    }
    if (!known) refuse_name(name);
  }
  const bool any = std::find(wanted.begin(), wanted.end(), true) != wanted.end();
  std::vector<const Rewrite*> chosen;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] || (any && all_rewrites()[i]->always)) chosen.push_back(all_rewrites()[i]);
  }
  return chosen;
}

}  // namespace nimble
