#!/usr/bin/env bash
# lint.sh --check|--fix: clang-format over all C++ and CUDA, ruff over all Python. The tools come from .venv-lint, made
# from requirements-lint.txt once for each content of that file.
source "$(dirname "$0")/common.sh"

stamp=.venv-lint/.requirements
wanted=$(sha256sum requirements-lint.txt)
if [[ ! -f $stamp || $(<$stamp) != "$wanted" ]]; then
  scripts/packages.sh
  "$PYTHON" -m venv --clear .venv-lint
  .venv-lint/bin/python -m pip install --quiet -r requirements-lint.txt >&2
  echo "$wanted" >$stamp
fi

# Tracked files and those about to be.
cpp_files() { git ls-files -z --cached --others --exclude-standard '*.cpp' '*.h' '*.cu' '*.cuh'; }

status=0
case ${1:-} in
  --check)
    cpp_files | xargs -0 .venv-lint/bin/clang-format --dry-run -Werror || status=1
    .venv-lint/bin/ruff check . || status=1
    .venv-lint/bin/ruff format --check . || status=1
    ;;
  --fix)
    cpp_files | xargs -0 .venv-lint/bin/clang-format -i
    .venv-lint/bin/ruff check --fix . || status=1
    .venv-lint/bin/ruff format . || status=1
    ;;
  *) die "usage: scripts/lint.sh --check|--fix" ;;
esac
exit "$status"
