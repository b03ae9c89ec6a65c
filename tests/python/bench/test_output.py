"""What is made from a report: tables, exhibits, pictures."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from bench.reports import report, row, timing
from nimble.bench import exhibits, table
from nimble.bench.output import read
from nimble.bench.page import filled
from nimble.bench.plot import pictures
from nimble.cli import main
from nimble.exit_codes import WrongInput

ROOT = Path(__file__).resolve().parents[3]


def cells(text: str, first: str) -> list[str]:
    """Of the line of a Markdown table that begins with this cell."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.split("|")[1:-1]]


def column(text: str, first: str, name: str) -> str:
    head = next(line for line in text.splitlines() if name in line)
    return cells(text, first)[[cell.strip() for cell in head.split("|")[1:-1]].index(name)]


def test_every_line_of_a_table_has_as_many_cells_as_its_head():
    for text in (table.summary(report()), table.details(report()), exhibits.page(report())):
        counts: list[int] = []
        for line in [*text.splitlines(), ""]:
            if line.startswith("|"):
                counts.append(line.count("|"))
            else:
                assert len(set(counts)) <= 1, text
                counts = []


def test_the_summary_compares_nimble_with_eager_and_the_graph():
    found = cells(table.summary(report()), "nasnet_a_mobile")
    assert found[3] == "20.00"
    assert found[-2:] == ["20.00", "2.50"]
    assert "1.000" in found and "**0.500**" in found  # the fastest stands out


def test_a_row_has_figures_or_the_reason_why_not():
    text = table.details(report())
    assert cells(text, "torch.compile")[1] == "not ready after 120 s"
    assert cells(text, "Nimble")[1] == "**1.000** (0.900–1.200, 200)"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("p99 ms", "1.500"),
        ("× eager", "20.00"),
        ("× graph", "2.50"),
        ("× critical path", "1.25"),
        ("GPU active", "60%"),
        ("tasks", "898"),
        ("streams", "8"),
        ("syncs", "229"),
        ("memory MiB", "50.0"),  # what the schedule owns, not what PyTorch reserved meanwhile
        ("of eager's", "0.50"),
        ("by the driver MiB", "2048"),
        ("unshared MiB", "150.0"),
        ("prepared s", "1.25"),
        ("recorded, planned ms", "42"),
        ("while preparing MiB", "300"),
        ("host µs", "27"),
        ("of it launch", "19"),
        ("answer", "same bits"),
    ],
)
def test_the_details_have_every_figure(name, value):
    assert column(table.details(report()), "Nimble", name) == value


def test_the_geometric_mean_is_over_what_was_measured():
    two = [row(name, "nimble", "Nimble", over_eager=ratio) for name, ratio in (("a", 2.0), ("b", 8.0))]
    assert "4.00 in inference" in table.means({"rows": [*two, row("c", "nimble", "Nimble", failed="no")]})
    assert table.means({"rows": two[:1]}) == ""


def test_columns_without_any_figure_are_left_out():
    on_cpu = [row("add_one", "eager", "eager", timing=timing(1.0), over_eager=1.0, answer="itself")]
    head = table.details({"rows": on_cpu}).splitlines()[2]
    assert head == "| system | ms (p5–p95, runs) | p99 ms | × eager | answer |"


def test_memory_of_training_is_everything_against_eagers():
    rows = [each for each in report()["rows"] if "training" in each["workload"]]
    training = table.details({"rows": rows})
    assert column(training, "Nimble", "memory MiB") == "200.0"
    assert column(training, "Nimble", "of eager's") == "0.50"


def test_cudnns_search_stands_apart():
    assert "searches its kernels: 1.50 s" in table.details(report())


def test_the_page_says_where_it_was_measured_and_how():
    page = table.page(report())
    assert "some GPU" in page and "driver 580.1" in page and "`nimble bench`" in page
    assert "6.2 µs" in page


def test_exhibits_put_the_papers_figures_beside_ours():
    page = exhibits.page(report())
    assert "91% in the paper, 90% here" in page
    assert "22.34 in the paper, 20.00 here" in page
    assert "3.61 in the paper, 6.00 here" in page
    many_streams = page[page.index("## Many streams") :]
    assert cells(many_streams, "nasnet_a_mobile, batch 1, fp32")[1:] == ["2.40", "8", "15", "15"]
    without_parts = page[page.index("## Without each part") :]
    network = "nasnet_a_mobile, batch 1, fp32"
    assert column(without_parts, network, "one stream: time") == "2.40"
    assert column(without_parts, network, "no memory shared: time") == "1.10"
    assert column(without_parts, network, "no memory shared: memory") == "3.00"
    without_rewrites = page[page.index("## Without each rewrite") :]
    assert column(without_rewrites, "all of them", network) == "2.00"
    assert column(without_rewrites, "`pooling`", network) == "1.20"


EXPLAINED = """(f32[1, 3, 224, 224])
  recorded       898 tasks in 30.0 ms
  rewrite        pooling: 41 times, 898 to 857 tasks in 9.12 ms (avg_pool2d#7, max_pool2d#9, …)
  rewrite        merge_linears: dropped, the program was slower with it
  rewritten      from 1.10 ms to 0.50 ms on one stream, in 412 ms
"""


def test_a_rewrite_that_fired_nowhere_has_no_ratio_but_shows_how_far_such_times_are_apart():
    times = {"pooling": 0.60, "merge_linears": 0.49, "fold_padding": 0.52, "fuse_rows": 0.50}
    rows = [
        row("nasnet_a_mobile", "nimble-rewrites", "Nimble", timing=timing(0.5), explain=EXPLAINED),
        *(row("nasnet_a_mobile", f"nimble-no-{name}", name, timing=timing(t)) for name, t in times.items()),
    ]
    page = exhibits.ablations({"rows": rows})
    ratios = {name: column(page, f"`{name}`", "nasnet_a_mobile, batch 1, fp32") for name in times}
    assert ratios == {"pooling": "1.20", "merge_linears": "–", "fold_padding": "–", "fuse_rows": "–"}
    assert column(page, "*one that fired nowhere*", "nasnet_a_mobile, batch 1, fp32") == "0.98–1.04 (3)"


def test_of_a_single_time_the_noise_is_one_figure_and_without_any_there_is_none():
    rows = [
        row("nasnet_a_mobile", "nimble-rewrites", "Nimble", timing=timing(0.5), explain=EXPLAINED),
        row("nasnet_a_mobile", "nimble-no-pooling", "Nimble", timing=timing(0.6)),
    ]
    assert "fired nowhere" not in exhibits.ablations({"rows": rows})
    rows.append(row("nasnet_a_mobile", "nimble-no-fuse_rows", "Nimble", timing=timing(0.505)))
    page = exhibits.ablations({"rows": rows})
    assert column(page, "*one that fired nowhere*", "nasnet_a_mobile, batch 1, fp32") == "1.01 (1)"


def test_steps_with_a_tolerance_have_a_table_of_their_own():
    times = {"nimble": 15.0, "nimble-tolerant": 12.0, "nimble-tolerant-no-fuse_batch_norm": 14.4}
    rows = [row("training/resnet50", name, name, timing=timing(time)) for name, time in times.items()]
    page = exhibits.ablations({"rows": rows})
    assert "times the time of a step with a tolerance" in page
    assert column(page, "all of them", "resnet50, batch 1, fp32") == "1.25"
    assert column(page, "`fuse_batch_norm`", "resnet50, batch 1, fp32") == "1.20"


def test_there_is_no_table_of_what_nobody_left_out():
    whole = report()
    whole["rows"] = [row for row in whole["rows"] if not row["system"].startswith("nimble-no-")]
    assert "Without each rewrite" not in exhibits.ablations(whole)
    assert "Without each part" in exhibits.ablations(whole)
    whole["rows"] = [row for row in whole["rows"] if row["system"] in ("eager", "nimble")]
    assert exhibits.ablations(whole) == ""


def test_pictures_come_as_svg_and_png_with_every_system_in_the_legend(tmp_path):
    pytest.importorskip("matplotlib")
    made = pictures(report(), tmp_path, "net")
    names = {"net-inference-speed", "net-inference-memory", "net-training-speed", "net-training-memory"}
    assert {path.name for path in made} == {
        f"{name}{ending}" for name in names for ending in (".svg", ".png")
    }
    svg = tmp_path / "net-inference-speed.svg"
    text = " ".join(ElementTree.parse(svg).getroot().itertext())
    for expected in ("Nimble", "CUDA graph, one stream", "nasnet_a_mobile", "× eager", "20.0"):
        assert expected in text
    assert (tmp_path / "net-inference-speed.png").read_bytes().startswith(b"\x89PNG")


def test_there_is_no_picture_of_device_memory_without_a_device(tmp_path):
    pytest.importorskip("matplotlib")
    on_cpu = report()
    for each in on_cpu["rows"]:
        each["device"] = "cpu"
    assert {path.stem for path in pictures(on_cpu, tmp_path, "net")} == {
        "net-inference-speed",
        "net-training-speed",
    }


def test_a_report_can_be_drawn_again(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    (tmp_path / "old.json").write_text(json.dumps(report()))
    assert main(["bench", "--draw", str(tmp_path / "old.json"), "--out", str(tmp_path / "new")]) == 0
    assert (tmp_path / "new/old.md").read_text() == table.page(report())
    assert (tmp_path / "new/old-inference-speed.svg").exists()
    assert "old.md" in capsys.readouterr().out


def test_drawing_again_and_filling_speak_json_too(page, capsys):
    pytest.importorskip("matplotlib")
    drawn = page.parent / "data/net.json"
    assert main(["bench", "--draw", str(drawn), "--out", str(page.parent / "new"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(drawn.read_text())
    assert main(["bench", "--fill", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"filled": [str(page)]}


PAGE = """# A page

<!-- nimble bench: data/net.json headline batch=1 -->
old figures
<!-- end -->

and more
"""


@pytest.fixture
def page(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/net.json").write_text(json.dumps(report()))
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_the_tables_of_a_page_come_from_its_data(page, capsys):
    assert main(["bench", "--fill", str(page)]) == 0
    text = page.read_text()
    assert cells(text, "nasnet_a_mobile") == [
        "nasnet_a_mobile",
        "20.00",
        "2.500",
        "1.000",
        "20.00",
        "2.50",
        "8",
    ]
    assert "old figures" not in text and "resnet50" not in text
    assert text.startswith("# A page") and text.endswith("and more\n")
    assert filled(page) == text  # a second time changes nothing


def test_a_table_of_several_reports_has_the_rows_of_all(page):
    other = report()
    for each in other["rows"]:
        each["workload"] = each["workload"].replace("nasnet_a_mobile", "another_net")
    (page.parent / "data/other.json").write_text(json.dumps(other))
    page.write_text(PAGE.replace("data/net.json", "data/net.json+data/other.json"))
    text = filled(page)
    assert cells(text, "another_net")[1:] == cells(text, "nasnet_a_mobile")[1:]


def test_of_what_several_reports_have_measured_the_first_counts(page):
    slower, without_figures = report(), report()
    for each in slower["rows"]:
        if "timing" in each:
            each["timing"] = timing(7 * each["timing"]["median"])
    for each in without_figures["rows"]:
        each.pop("timing", None)
        each["failed"] = "not reached"
    (page.parent / "data/slower.json").write_text(json.dumps(slower))
    (page.parent / "data/without.json").write_text(json.dumps(without_figures))
    page.write_text(PAGE.replace("data/net.json", "data/without.json+data/net.json+data/slower.json"))
    assert cells(filled(page), "nasnet_a_mobile")[1:4] == ["20.00", "2.500", "1.000"]


@pytest.mark.parametrize(
    ("wrong", "advice"), [("headlin", "did you mean headline"), ("headline speed=3", "batch=")]
)
def test_a_table_that_cannot_be_made_is_refused(page, wrong, advice, capsys):
    page.write_text(PAGE.replace("headline batch=1", wrong))
    assert main(["bench", "--fill", str(page)]) == 2
    assert advice in capsys.readouterr().err


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.stem
)
def test_the_figures_of_our_pages_are_those_of_their_data(page):
    assert page.read_text() == filled(page), "run `nimble bench --fill` with this page"


@pytest.mark.parametrize("text", ["{}", "[]", "no JSON", '{"format": "nimble-bench", "version": 99}'])
def test_what_is_no_report_is_refused(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(WrongInput, match=r"other\.json"):
        read(path)
