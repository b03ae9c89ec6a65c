#include "nimble/kernels/foreach_source.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nimble/kernels/device_sources.h"
#include "nimble/kernels/element_source.h"

namespace nimble::kernels {
namespace {

constexpr std::size_t kTableWords = 4096 / sizeof(std::uint64_t);  // what every GPU takes as an argument
constexpr std::int64_t kThreads = 256;
constexpr std::int64_t kWidestLoad = 16;  // bytes

// Beside its addresses a tensor has a length and a first block; two words more are for the table itself.
std::size_t tensors_in_table(std::size_t lists) { return (kTableWords - 2) / (lists + 2); }

std::int64_t vector_of(c10::ScalarType type) {
  return kWidestLoad / static_cast<std::int64_t>(c10::elementSize(type));
}

bool are_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

std::string number(std::size_t value) { return std::to_string(value); }

// The text of one kernel. Inside it `p` are the tensors of a block; `v` what was loaded, `a` the inputs' and
// `t` the steps' values of one lane, `r` what is to be stored.
class Emitter {
 public:
  Emitter(const Expression& expression, std::span<const ListForm> forms, std::size_t written)
      : expression_(expression),
        forms_(forms),
        written_(written),
        inputs_(typed(forms.first(expression.inputs))),
        steps_(expression.steps.size(), of_type(worked_on())),
        element_(expression, inputs_, steps_) {}

  KernelSource emit() const {
    return {with_prelude(device::foreach, table() + elements() + kernel()), 1, kThreads, false};
  }

 private:
  static at::Tensor of_type(c10::ScalarType type) {
    return at::empty({0}, at::device(at::kMeta).dtype(type));
  }
  static std::vector<at::Tensor> typed(std::span<const ListForm> forms) {
    std::vector<at::Tensor> tensors;
    for (const ListForm& form : forms) tensors.push_back(of_type(form.type));
    return tensors;
  }
  c10::ScalarType worked_on() const { return std::ranges::find(forms_, false, &ListForm::is_number)->type; }
  std::string type(std::size_t list) const { return std::string(device_type(forms_[list].type)); }
  // The list that a result goes to: new ones come behind the inputs.
  std::size_t place_of(std::size_t result) const {
    return result < written_ ? result : expression_.inputs + result - written_;
  }

  // "p0, p1, a2": of each list the tensor, or its number.
  template <class Name>
  std::string each(Name name) const {
    std::string text;
    for (std::size_t i = 0; i < forms_.size(); ++i) text += ", " + name(i, forms_[i].is_number);
    return text;
  }

  std::string table() const {
    const std::string most = number(tensors_in_table(forms_.size()));
    return "struct Table {\n  void* at[" + number(forms_.size()) + "][" + most + "];\n  long long sizes[" +
           most + "], first[" + most + "], count, chunk;\n};\n";
  }

  // What is done with the elements from the i-th on.
  std::string elements() const {
    std::string text = "template <int width>\n__device__ inline void elements(long long i" +
                       each([&](std::size_t list, bool is_number) {
                         return is_number ? "arithmetic_t<" + type(list) + "> a" + number(list)
                                          : type(list) + "* p" + number(list);
                       }) +
                       ") {\n";
    for (std::size_t i = 0; i < expression_.inputs; ++i) {
      if (!forms_[i].is_number)
        text += "  const auto v" + number(i) + " = load<width>(p" + number(i) + " + i);\n";
    }
    for (std::size_t r = 0; r < expression_.results.size(); ++r) {
      text += "  Vector<" + type(place_of(r)) + ", width> r" + number(r) + ";\n";
    }
    text += "#pragma unroll\n  for (int lane = 0; lane < width; ++lane) {\n";
    for (std::size_t i = 0; i < expression_.inputs; ++i) {
      if (!forms_[i].is_number)
        text += "    const auto a" + number(i) + " = widen(v" + number(i) + ".at[lane]);\n";
    }
    for (std::size_t s = 0; s < expression_.steps.size(); ++s) text += "    " + element_.step(s);
    for (std::size_t r = 0; r < expression_.results.size(); ++r) {
      text += "    r" + number(r) + ".at[lane] = Narrow<" + type(place_of(r)) + ">::of(" +
              ElementSource::name(expression_.results[r]) + ");\n";
    }
    text += "  }\n";
    for (std::size_t r = 0; r < expression_.results.size(); ++r) {
      text += "  store(p" + number(place_of(r)) + " + i, r" + number(r) + ");\n";
    }
    return text + "}\n";
  }

  std::string kernel() const {
    std::string text = "extern \"C\" __global__ void __launch_bounds__(" + number(kThreads) + ") " +
                       KernelSource::kName + "(const __grid_constant__ Table table) {\n" +
                       "  const int tensor = tensor_of_block(table);\n";
    std::string all, tensors, numbers;
    for (std::size_t i = 0; i < forms_.size(); ++i) {
      const std::string p = "p" + number(i);
      text += "  " + type(i) + "* " + p + " = static_cast<" + type(i) + "*>(table.at[" + number(i) +
              "][tensor]);\n";
      all += (i ? ", " : "") + p;
      if (forms_[i].is_number) {
        numbers += "  const auto a" + number(i) + " = widen(*" + p + ");\n";
      } else {
        tensors += (tensors.empty() ? "" : ", ") + p;
      }
    }
    const std::string given =
        each([](std::size_t list, bool is_number) { return (is_number ? "a" : "p") + number(list); });
    return text + "  after_earlier_kernels(" + all + ");\n" + numbers + "  over_chunk<" + number(kThreads) +
           ", " + number(vector_of(worked_on())) + ">(table, tensor, are_aligned(" + tensors +
           "), [&](auto width, long long i) {\n    elements<decltype(width)::value>(i" + given +
           ");\n  });\n}\n";
  }

  const Expression& expression_;
  std::span<const ListForm> forms_;
  std::size_t written_;
  std::vector<at::Tensor> inputs_, steps_;  // of nothing but a type
  ElementSource element_;
};

// Little work is spread over the whole chip; a block that has more to do finds its tensor less often.
std::int64_t chunk_of(const std::vector<at::Tensor>& tensors) {
  constexpr std::int64_t kEnoughBlocks = 132 * 8, kRounds = 4;  // of an H200
  std::int64_t elements = 0;
  for (const at::Tensor& tensor : tensors) elements += tensor.numel();
  const std::int64_t round = kThreads * vector_of(tensors.front().scalar_type());
  return elements < kEnoughBlocks * kRounds * round ? round : kRounds * round;
}

void* address_of(const at::Tensor& tensor) { return const_cast<void*>(tensor.const_data_ptr()); }

}  // namespace

std::vector<std::span<const at::Tensor>> Lists::all() const {
  std::vector<std::span<const at::Tensor>> lists;
  for (const auto* kind : {&written, &read, &made}) lists.insert(lists.end(), kind->begin(), kind->end());
  return lists;
}

std::vector<ListForm> forms_of(const Lists& lists) {
  const auto all = lists.all();
  const auto has_dimensions = [](std::span<const at::Tensor> list) {
    return std::ranges::any_of(list, [](const at::Tensor& tensor) { return tensor.dim() > 0; });
  };
  const auto found = std::ranges::find_if(all, has_dimensions);
  const std::span<const at::Tensor> model = found == all.end() ? all.front() : *found;
  std::vector<ListForm> forms;
  for (std::size_t l = 0; l < all.size(); ++l) {
    const auto type = all[l].front().scalar_type();
    bool like_model = all[l].size() == model.size(), is_number = like_model;
    for (std::size_t i = 0; i < all[l].size(); ++i) {
      const at::Tensor& tensor = all[l][i];
      if (tensor.scalar_type() != type || !tensor.is_non_overlapping_and_dense()) return {};
      is_number &= tensor.dim() == 0;
      like_model = like_model && are_alike(tensor, model[i]);
    }
    const bool is_read = l >= lists.written.size() && l < lists.written.size() + lists.read.size();
    if (!c10::isFloatingType(type) || device_type(type).empty() || !(like_model || (is_number && is_read)))
      return {};
    forms.push_back({type, !like_model});
  }
  return forms;
}

KernelSource foreach_source(const Expression& expression, std::span<const ListForm> forms,
                            std::size_t written) {
  return Emitter(expression, forms, written).emit();
}

std::vector<TableLaunch> table_launches(const Lists& lists) {
  const auto all = lists.all();
  const std::size_t most = tensors_in_table(all.size());
  const auto& model = (lists.written.empty() ? lists.made : lists.written).front();
  const std::int64_t chunk = chunk_of(model);
  std::vector<TableLaunch> launches;
  std::size_t inside = most;  // tensors in the last of them
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (model[i].numel() == 0) continue;
    if (inside == most) {
      launches.push_back({std::vector<std::uint64_t>((all.size() + 2) * most + 2)});
      launches.back().table.back() = static_cast<std::uint64_t>(chunk);
      inside = 0;
    }
    auto& [table, blocks] = launches.back();
    for (std::size_t l = 0; l < all.size(); ++l) {
      table[l * most + inside] = reinterpret_cast<std::uint64_t>(address_of(all[l][i]));
    }
    table[all.size() * most + inside] = static_cast<std::uint64_t>(model[i].numel());
    table[(all.size() + 1) * most + inside] = blocks;
    table[table.size() - 2] = ++inside;
    blocks += static_cast<unsigned>((model[i].numel() + chunk - 1) / chunk);
  }
  return launches;
}

}  // namespace nimble::kernels
