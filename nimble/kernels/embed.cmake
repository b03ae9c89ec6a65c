# embed.cmake: writes OUTPUT, a C++ header with the text of each of SOURCES as a constant named after its file.
set(text "#pragma once\n\n#include <string_view>\n\nnamespace nimble::kernels::device {\n\n")
foreach(source IN LISTS SOURCES)
  cmake_path(GET source STEM name)
  file(READ ${source} content)
  string(APPEND text "inline constexpr std::string_view ${name} = R\"device(${content})device\";\n\n")
endforeach()
string(APPEND text "}  // namespace nimble::kernels::device\n")
file(WRITE ${OUTPUT} "${text}")
