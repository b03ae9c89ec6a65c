#!/usr/bin/env bash
# Makes sure that the system has what the build needs, plus the packages for the commands named as arguments
# (`packages.sh clang++`). Looks for the things themselves, not for Debian's packages, so that a machine which got
# them another way is left alone.
source "$(dirname "$0")/common.sh"

declare -A package_of=([make]=make [g++]=g++ [cmake]=cmake [ninja]=ninja-build [python3]=python3 [clang++]=clang)
commands=(make g++ cmake ninja)
[[ $PYTHON == python3 ]] && commands+=(python3)
libraries=(libgtest-dev libbenchmark-dev libcli11-dev nlohmann-json3-dev)

missing=()
for command in "${commands[@]}" "$@"; do
  command -v "$command" >/dev/null || missing+=("${package_of[$command]}")
done

# CMake itself is asked for the libraries, since it is CMake that has to find them. Without one, ask for all of them.
if command -v cmake >/dev/null && command -v g++ >/dev/null && command -v ninja >/dev/null; then
  probe=$(cmake -S scripts/probe -B build/probe -G Ninja 2>&1) || die "CMake cannot configure here: $probe"
  while read -r package; do missing+=("$package"); done < <(sed -n 's/^-- missing: //p' <<<"$probe")
else
  missing+=("${libraries[@]}")
fi

if command -v "$PYTHON" >/dev/null; then
  has_header='import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
  "$PYTHON" -c "$has_header" || missing+=(python3-dev)
  has_torch "$PYTHON" || "$PYTHON" -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
elif [[ $PYTHON == python3 ]]; then
  missing+=(python3-dev python3-venv)
else
  die "PYTHON=$PYTHON is not there"
fi

((${#missing[@]})) || exit 0

install="apt-get -qq update && apt-get -qq install -y ${missing[*]}"
say "missing: ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  die "install these (named as Debian names them) and try again: ${missing[*]}"
elif [[ $(id -u) == 0 ]]; then
  root=(env)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  root=(sudo env)
else
  die "run this and try again: sudo sh -c '$install'"
fi
"${root[@]}" DEBIAN_FRONTEND=noninteractive sh -c "$install" >&2 || die "this failed: $install"
