#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

namespace torch::autograd {
struct Node;
}

namespace nimble {

// What a recording sees of autograd: which nodes of its graph ran backward, and which module each of them
// stems from.
class AutogradTrace {
 public:
  // A node runs backward, without a graph of its own.
  void runs(const std::shared_ptr<torch::autograd::Node>& node);
  bool any() const { return !nodes_.empty(); }

  // Whether the graph behind this result ran: then nobody can go backward from it again.
  bool ran_behind(const at::Tensor& output) const;

  // Whose forward is running: "layer1.0.conv1", or nothing between modules.
  void set_module(std::string path) { module_ = std::move(path); }

  // Of the call that is about to run: the module whose forward it belongs to, also in the backward pass, and
  // the name of the node that makes it there.
  struct Origin {
    std::string module = {}, node = {};
  };
  Origin origin_of_next_call();

 private:
  std::unordered_map<const torch::autograd::Node*, std::weak_ptr<torch::autograd::Node>> nodes_;
  std::string module_;
  // By the number that autograd gave to a node: the module whose forward made it.
  std::unordered_map<std::uint64_t, std::string> module_of_node_;
};

}  // namespace nimble
