#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nimble/kernels/expression.h"
#include "nimble/kernels/kernel_source.h"

namespace nimble::kernels {

// A list of tensors as a kernel sees it: one element for each of the tensors that are worked on, or one
// number for all of them.
struct ListForm {
  c10::ScalarType type = c10::kFloat;
  bool is_number = false;
};

// Lists of tensors, all of the same length: what goes into a list in place, what is only read, and what is
// made.
struct Lists {
  std::vector<std::vector<at::Tensor>> written, read, made = {};

  std::vector<std::span<const at::Tensor>> all() const;
};

// How a kernel sees the lists, in the order of `all()`; none where no kernel can: the tensors at one place
// must be floating-point ones, laid out alike and without gaps, of a type that all lists share. Lists that
// are only read may consist of tensors without a dimension instead.
std::vector<ListForm> forms_of(const Lists& lists);

// The kernel that computes `expression` for any lists of these forms, the first `written` of them in place.
// Its one argument is a table.
KernelSource foreach_source(const Expression& expression, std::span<const ListForm> forms,
                            std::size_t written);

// How often it is to be launched, with which tables and how many blocks: a table has 4 KB at most.
struct TableLaunch {
  std::vector<std::uint64_t> table;
  unsigned blocks = 0;
};
std::vector<TableLaunch> table_launches(const Lists& lists);

}  // namespace nimble::kernels
