#pragma once

#include <array>
#include <string_view>

#include "nimble/core/ids.h"

namespace nimble {

// The colour of a stream in every picture: dark enough for white text, told apart by colour-blind readers,
// repeated after eight.
inline std::string_view stream_colour(StreamId stream) {
  constexpr std::array<std::string_view, 8> kColours = {"#3366aa", "#b3541e", "#2b7a5b", "#8a3d7a",
                                                        "#7a6200", "#b0304f", "#1f7a8c", "#5b5b66"};
  return kColours[stream.index() % kColours.size()];
}

}  // namespace nimble
