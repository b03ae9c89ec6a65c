# shellcheck shell=bash
# What every script here starts with: strict mode, the repository's root as working directory, and how to speak.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
CUDA=${CUDA:-1}

say() { printf '[nimble] %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

# Whether an interpreter has the torch that Nimble is written for. Reads the version without importing torch, which
# would take seconds.
has_torch() {
  "$1" - 2>/dev/null <<'PY'
import importlib.util, pathlib, runpy, sys
spec = importlib.util.find_spec("torch")
version = runpy.run_path(pathlib.Path(spec.origin).with_name("version.py"))["__version__"]
sys.exit(not version.startswith("2.11."))
PY
}

# The interpreter that everything runs with: PYTHON where it has torch, else that of .venv.
project_python() {
  if has_torch "$PYTHON"; then
    "$PYTHON" -c 'import sys; print(sys.executable)'
  else
    echo "$PWD/.venv/bin/python"
  fi
}

# The path of an nvcc that runs, or nothing. NVIDIA's packages do not put it on PATH.
find_nvcc() {
  local nvcc
  for nvcc in "$(command -v nvcc)" /usr/local/cuda/bin/nvcc; do
    if "$nvcc" --version >/dev/null 2>&1; then
      echo "$nvcc"
      return
    fi
  done
}

# How many files to compile at once: one for each core, as long as each has the 2 GB that torch's headers take.
build_jobs() {
  if [[ -n ${JOBS:-} ]]; then
    echo "$JOBS"
    return
  fi
  local cores gigabytes limit
  cores=$(nproc)
  gigabytes=$(awk '/MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)
  if [[ $limit =~ ^[0-9]+$ ]] && ((limit >> 30 < gigabytes)); then
    gigabytes=$((limit >> 30))
  fi
  local jobs=$((gigabytes / 2 < cores ? gigabytes / 2 : cores))
  echo $((jobs > 0 ? jobs : 1))
}
