#!/usr/bin/env bash
# Makes sure that there is a Python with torch 2.11. PYTHON itself, where it has one: nothing is downloaded then. Else
# .venv is made from requirements.txt, once for each content of that file.
source "$(dirname "$0")/common.sh"

has_torch "$PYTHON" && exit 0

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "$PYTHON is older than Python 3.11"
stamp=.venv/.requirements
wanted=$("$PYTHON" --version | sha256sum - requirements.txt)
[[ -f $stamp && $(<$stamp) == "$wanted" ]] && exit 0

say "$PYTHON has no torch 2.11: making .venv (about 5 GB, some minutes)"
# An environment of another Python is of no use to this one.
clear=()
[[ $(.venv/bin/python --version 2>/dev/null) == "$("$PYTHON" --version)" ]] || clear=(--clear)
"$PYTHON" -m venv "${clear[@]}" .venv
.venv/bin/python -m pip install --quiet -r requirements.txt >&2
echo "$wanted" >$stamp
