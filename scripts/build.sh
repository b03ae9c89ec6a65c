#!/usr/bin/env bash
# build.sh DIRECTORY [CMAKE OPTION...]: sets up what is missing, configures when the options change, builds.
source "$(dirname "$0")/common.sh"

directory=$1
shift
scripts/packages.sh
options=("$@")
if [[ " $* " != *" -DNIMBLE_TORCH=OFF "* ]]; then
  scripts/python.sh
  options+=(-DPython3_EXECUTABLE="$(project_python)")
fi
nvcc=$(find_nvcc)
if [[ $CUDA == 0 ]]; then
  options+=(-DNIMBLE_CUDA=OFF)
  say "CUDA=0: building without CUDA"
elif [[ -z $nvcc ]]; then
  options+=(-DNIMBLE_CUDA=OFF)
  say "nvcc not found: building without CUDA"
else
  options+=(-DNIMBLE_CUDA=ON)
  export CUDACXX=$nvcc
fi

# Ninja runs CMake again when a CMakeLists.txt changes, so CMake has to be called only for new options.
stamp=$directory/.options
if [[ ! -f $directory/build.ninja || ! -f $stamp || $(<"$stamp") != "${options[*]}" ]]; then
  rm -f "$stamp"
  cmake --fresh -S . -B "$directory" -G Ninja "${options[@]}" >&2
  echo "${options[*]}" >"$stamp"
fi
cmake --build "$directory" --parallel "$(build_jobs)" >&2
