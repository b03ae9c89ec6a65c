#!/usr/bin/env bash
# Builds, then runs CTest and pytest, both in any case, and closes with one summary. --full adds the long tests.
source "$(dirname "$0")/common.sh"

ctest_selection=(--label-exclude full)
pytest_selection=()
if [[ ${1:-} == --full ]]; then
  ctest_selection=()
  pytest_selection=(-m '')
fi

scripts/browser.sh
scripts/build.sh build
python=$(project_python)
results=$PWD/build/test-results
rm -rf "$results"
mkdir -p "$results"

status=0
ctest --test-dir build --output-on-failure --parallel "$(nproc)" --output-junit "$results/ctest.xml" \
  "${ctest_selection[@]}" || status=1
PYTHONPATH=$PWD/build/python "$python" -m pytest --junitxml "$results/pytest.xml" "${pytest_selection[@]}" || status=1
"$python" scripts/summary.py "$results" ctest pytest || status=1
exit "$status"
