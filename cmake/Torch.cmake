# torch 2.11 as the interpreter PYTHON has it, linked directly: the CMake package that PyTorch ships insists on a
# CUDA toolkit even where only its CPU half is used. Defines torch::torch, torch::cuda (where torch was built with
# CUDA) and torch::python, plus NIMBLE_TORCH_LIB_DIR.
include_guard(DIRECTORY)
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

execute_process(
  COMMAND ${Python3_EXECUTABLE} -c "import torch, os; print(torch.__version__); print(os.path.dirname(torch.__file__)); print(torch.version.cuda or '')"
  OUTPUT_VARIABLE nimble_torch_facts OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE nimble_torch_missing)
if(nimble_torch_missing)
  set(core_alone "configure with -DNIMBLE_TORCH=OFF")
  if(CMAKE_FIND_PACKAGE_NAME STREQUAL Nimble)
    set(core_alone "ask for find_package(Nimble COMPONENTS core)")
  endif()
  message(FATAL_ERROR "${Python3_EXECUTABLE} cannot import torch: install torch==2.11.0, or name a Python that has it "
    "with -DPython3_EXECUTABLE=PATH; for the core alone ${core_alone}")
endif()
string(REPLACE "\n" ";" nimble_torch_facts "${nimble_torch_facts};")
list(GET nimble_torch_facts 0 NIMBLE_TORCH_VERSION)
list(GET nimble_torch_facts 1 NIMBLE_TORCH_DIR)
list(GET nimble_torch_facts 2 NIMBLE_TORCH_CUDA_VERSION)
if(NOT NIMBLE_TORCH_VERSION MATCHES "^2\\.11\\.")
  message(FATAL_ERROR "Nimble needs torch 2.11, ${Python3_EXECUTABLE} has ${NIMBLE_TORCH_VERSION}: name another Python "
    "with -DPython3_EXECUTABLE=PATH")
endif()
message(STATUS "torch ${NIMBLE_TORCH_VERSION} in ${NIMBLE_TORCH_DIR}")
set(NIMBLE_TORCH_LIB_DIR ${NIMBLE_TORCH_DIR}/lib)

function(nimble_import_torch_library name file)
  add_library(${name} SHARED IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES
    IMPORTED_LOCATION ${NIMBLE_TORCH_LIB_DIR}/lib${file}.so
    INTERFACE_INCLUDE_DIRECTORIES "${NIMBLE_TORCH_DIR}/include;${NIMBLE_TORCH_DIR}/include/torch/csrc/api/include")
endfunction()

nimble_import_torch_library(torch::c10 c10)
nimble_import_torch_library(torch::torch_cpu torch_cpu)
# libtorch_cpu.so names its sisters (OpenMP, the CUDA libraries) by paths relative to itself, which the loader
# follows and the linker does not; they need no link against them.
add_library(torch::torch INTERFACE IMPORTED GLOBAL)
target_link_libraries(torch::torch INTERFACE torch::torch_cpu torch::c10)
target_link_options(torch::torch INTERFACE -Wl,--allow-shlib-undefined)

if(NIMBLE_TORCH_CUDA_VERSION)
  nimble_import_torch_library(torch::torch_cuda torch_cuda)
  nimble_import_torch_library(torch::c10_cuda c10_cuda)
  add_library(torch::cuda INTERFACE IMPORTED GLOBAL)
  target_link_libraries(torch::cuda INTERFACE torch::torch_cuda torch::c10_cuda)
endif()

nimble_import_torch_library(torch::torch_python torch_python)
add_library(torch::python INTERFACE IMPORTED GLOBAL)
target_link_libraries(torch::python INTERFACE torch::torch_python Python3::Module)
