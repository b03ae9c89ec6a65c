#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace nimble {

// "1 stream", "4 streams".
std::string counted(std::uint64_t count, std::string_view thing);

// Three digits that matter, never an exponent: "0.0123 ms", "2560 ms"; "1.5 KiB", "0.845 MiB".
std::string milliseconds(double value);
std::string bytes(std::uint64_t count);

// What went wrong, without the stack that PyTorch adds.
std::string what_of(const std::exception& error);

}  // namespace nimble
