"""scripts/summary.py: what `make test` says last, which is what people and CI read."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
summary = runpy.run_path(str(ROOT / "scripts/summary.py"))

PASSED = '<testcase name="a" status="run"/>'
FAILED = '<testcase name="b" status="fail"><failure message=""/></testcase>'
CTEST_SKIPPED_GPU = (
    '<testcase name="c" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
    "<system-out>gpu_test.h:15: Skipped\nno CUDA device\n</system-out></testcase>"
)
PYTEST_SKIPPED_GPU = '<testcase name="d"><skipped type="pytest.skip" message="no CUDA device"/></testcase>'
GTEST_SKIPPED_GPU = (
    '<testcase name="e" status="run" result="skipped">'
    '<skipped message="gpu_test.h:15&#x0A;no CUDA device&#x0A;"/></testcase>'
)


@pytest.fixture
def folder(tmp_path):
    """Files of JUnit XML by name; returns the folder."""

    def write(**files: list[str]) -> Path:
        for name, cases in files.items():
            (tmp_path / f"{name}.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        return tmp_path

    return write


def run(folder: Path, capsys, runs=("ctest", "pytest")) -> tuple[int, list[str]]:
    status = summary["main"](folder, runs)
    return status, capsys.readouterr().out.strip().splitlines()


def test_adds_both_runs_up_in_a_plain_last_line(folder, capsys):
    status, lines = run(folder(ctest=[PASSED, PASSED], pytest=[PASSED]), capsys)
    assert lines == [
        "ctest   2 passed, 0 failed, 0 skipped",
        "pytest  1 passed, 0 failed, 0 skipped",
        "3 passed, 0 failed, 0 skipped",
    ]
    assert status == 0


def test_one_failure_in_either_run_fails_the_whole(folder, capsys):
    status, lines = run(folder(ctest=[PASSED, FAILED], pytest=[PASSED]), capsys)
    assert lines[-1] == "2 passed, 1 failed, 0 skipped"
    assert status == 1


def test_counts_gpu_tests_that_were_skipped_for_want_of_a_gpu(folder, capsys):
    other_skip = '<testcase name="f"><skipped message="no timm"/></testcase>'
    _, lines = run(folder(ctest=[PASSED, CTEST_SKIPPED_GPU], pytest=[PYTEST_SKIPPED_GPU, other_skip]), capsys)
    assert lines[-2:] == ["2 GPU tests were skipped: no CUDA device", "1 passed, 0 failed, 3 skipped"]


def test_counts_the_cases_of_a_program_that_is_one_ctest_test(folder, capsys):
    program = '<testcase name="engine_test" status="run"/>'
    _, lines = run(
        folder(ctest=[program], engine_test=[PASSED, PASSED, GTEST_SKIPPED_GPU]), capsys, ["ctest"]
    )
    assert lines[-2:] == ["1 GPU tests were skipped: no CUDA device", "2 passed, 0 failed, 1 skipped"]


def test_a_program_that_crashes_after_its_cases_passed_has_failed(folder, capsys):
    program = '<testcase name="engine_test" status="fail"><failure message="SEGFAULT"/></testcase>'
    status, lines = run(folder(ctest=[program], engine_test=[PASSED]), capsys, ["ctest"])
    assert lines[-1] == "1 passed, 1 failed, 0 skipped"
    assert status == 1


def test_a_test_whose_program_was_not_built_has_failed(folder, capsys):
    status, lines = run(
        folder(ctest=['<testcase name="gone_NOT_BUILT" status="notrun"/>']), capsys, ["ctest"]
    )
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"
    assert status == 1


def test_a_run_without_any_test_has_failed(folder, capsys):
    status, lines = run(folder(ctest=[]), capsys, ["ctest"])
    assert lines[-1] == "0 passed, 0 failed, 0 skipped"
    assert status == 1


def test_a_run_that_crashed_before_it_wrote_its_results_has_failed(folder, capsys):
    status, lines = run(folder(ctest=[PASSED, PASSED]), capsys)
    assert lines[-2:] == ["pytest  0 passed, 1 failed, 0 skipped", "2 passed, 1 failed, 0 skipped"]
    assert status == 1


def test_results_that_were_cut_off_have_failed(folder, capsys):
    results = folder(ctest=[PASSED])
    (results / "pytest.xml").write_text("<testsuite><testcase")
    status, lines = run(results, capsys)
    assert lines[-1] == "1 passed, 1 failed, 0 skipped"
    assert status == 1
