"""The paper's exhibits with our figures: what it states as a number stands beside ours, and nothing stands where it
shows a bar only."""

from __future__ import annotations

import re

from nimble.bench import paper
from nimble.bench.systems import GROUPS
from nimble.bench.table import NONE, cells_of, markdown, median, ratio, size_of, trains

# One stream is an exhibit of the paper's own.
WHOLE = {"nimble", "nimble-one-stream", "nimble-rewrites", "nimble-tolerant"}
ABLATIONS = set(GROUPS["ablations"]) - WHOLE

NOISE = (
    "A rewrite that fired nowhere in a network has no ratio there: without it the same program was prepared and timed\n"
    "once more. How far apart such times are is the last line, from the least of these ratios to the largest, and how\n"
    "many there were.\n\n"
)


def page(report: dict) -> str:
    parts = [
        "# The paper's exhibits, measured again\n",
        "The paper measured on a V100 with the PyTorch of 2020. Bars that it does not label are left out.\n",
        idle(report),
        inference(report),
        multi_stream(report),
        training(report),
        preparation(report),
    ]
    if any(row["system"] in ABLATIONS and "timing" in row for row in report["rows"]):
        parts.append(ablations(report))
    return "\n".join(parts)


def ablations(report: dict) -> str:
    """Those tables for which something was left out."""
    return "\n".join(filter(None, [without_parts(report), without_rewrites(report)]))


def of_kind(report: dict, training: bool) -> dict[tuple, dict[str, dict]]:
    return cells_of(row for row in report["rows"] if trains(row) == training)


def name_of(cell: tuple) -> str:
    workload, batch, dtype = cell
    return f"{workload.removeprefix('training/')}, batch {batch}, {dtype}"


def percent(row: dict | None) -> str:
    return f"{1 - row['active_share']:.0%}" if row and "active_share" in row else NONE


def idle(report: dict) -> str:
    rows = [
        [
            name_of(cell),
            percent(systems.get("eager")),
            percent(systems.get("cuda-graph")),
            percent(systems.get("nimble")),
        ]
        for cell, systems in of_kind(report, training=False).items()
    ]
    shares = [
        1 - row["active_share"]
        for row in report["rows"]
        if row["system"] == "eager" and "active_share" in row and not trains(row)
    ]
    ours = f"{max(shares):.0%}" if shares else NONE
    return (
        "## How long the GPU is idle\n\n"
        f"Eager PyTorch, at most: {paper.IDLE_SHARE_AT_MOST['PyTorch']:.0%} in the paper, {ours} here.\n\n"
        + markdown(["network", "eager", "CUDA graph, one stream", "Nimble"], rows)
    )


def most(report: dict, training: bool) -> str:
    found = [
        row["over_eager"]
        for row in report["rows"]
        if row["system"] == "nimble" and "over_eager" in row and trains(row) == training
    ]
    return f"{max(found):.2f}" if found else NONE


def inference(report: dict) -> str:
    rows = []
    for cell, systems in of_kind(report, training=False).items():
        if cell[0] in paper.EIGHT_NETWORKS:
            eager, ours = median(systems.get("eager")), median(systems.get("nimble"))
            rows.append([name_of(cell), ratio(eager, median(systems.get("cuda-graph"))), ratio(eager, ours)])
    return (
        "## Inference, over eager PyTorch\n\n"
        f"At most: {paper.INFERENCE_SPEED_UP_AT_MOST} in the paper, {most(report, training=False)} here.\n\n"
        + markdown(["network", "CUDA graph, one stream", "Nimble"], rows)
    )


def multi_stream(report: dict) -> str:
    rows = []
    for cell, systems in of_kind(report, training=False).items():
        one, many = systems.get("nimble-one-stream"), systems.get("nimble")
        stats = (many or {}).get("stats", {})
        degree = paper.DEGREE_OF_CONCURRENCY.get(cell[0])
        rows.append(
            [
                name_of(cell),
                ratio(median(one), median(many)),
                str(stats.get("streams", NONE)),
                str(stats.get("degree_of_concurrency", NONE)),
                str(degree) if degree else NONE,
            ]
        )
    head = ["network", "many streams over one", "streams", "degree of concurrency", "the paper's degree"]
    return "## Many streams against one\n\n" + markdown(head, rows)


def training(report: dict) -> str:
    rows = []
    for cell, systems in of_kind(report, training=True).items():
        eager, ours = median(systems.get("eager")), median(systems.get("nimble"))
        rows.append([name_of(cell), ratio(eager, median(systems.get("cuda-graph"))), ratio(eager, ours)])
    return (
        "## Training, over eager PyTorch\n\n"
        f"At most: {paper.TRAINING_SPEED_UP_AT_MOST} in the paper, {most(report, training=True)} here.\n\n"
        + markdown(["network", "CUDA graph, one stream", "Nimble"], rows)
    )


def preparation(report: dict) -> str:
    rows = []
    for cell, systems in cells_of(report["rows"]).items():
        ours, eager = systems.get("nimble", {}), systems.get("eager", {})
        rows.append(
            [name_of(cell), seconds(eager.get("first_run_seconds")), seconds(ours.get("prepare_seconds"))]
        )
    head = ["network", "cuDNN's search s", "Nimble s"]
    return "## Preparation\n\n" + markdown(head, rows)


def without_parts(report: dict) -> str:
    rows = []
    for cell, systems in cells_of(report["rows"]).items():
        whole, one_stream, unshared = (
            systems.get(name, {}) for name in ("nimble", "nimble-one-stream", "nimble-unshared-memory")
        )
        if "timing" in whole and ("timing" in one_stream or "timing" in unshared):
            times = (ratio(median(part), median(whole)) for part in (one_stream, unshared))
            memory = ratio(size_of(unshared), size_of(whole)) if unshared else NONE
            rows.append([name_of(cell), *times, memory])
    if not rows:
        return ""
    head = ["network", "one stream: time", "no memory shared: time", "no memory shared: memory"]
    return "## Without each part: times the whole's time or memory\n\n" + markdown(head, rows)


def without_rewrites(report: dict) -> str:
    """A table for inference, and one for steps of training with a tolerance."""
    tables = [
        left_out_of(report, "nimble-rewrites", "nimble-no-", "the rewritten program's time"),
        left_out_of(report, "nimble-tolerant", "nimble-tolerant-no-", "the time of a step with a tolerance"),
    ]
    return "\n".join(filter(None, tables))


def left_out_of(report: dict, whole: str, prefix: str, time: str) -> str:
    """A line for each rewrite and a column for each network in which one was left out, and a line for the noise."""
    left_out = dict.fromkeys(row["system"] for row in report["rows"] if row["system"].startswith(prefix))
    networks = {
        cell: systems
        for cell, systems in cells_of(report["rows"]).items()
        if any(median(systems.get(name)) for name in left_out)
    }
    if not networks:
        return ""
    columns = [Column(of, whole, prefix) for of in networks.values()]
    rows = [
        ["all of them", *(ratio(median(of.get("nimble")), median(of.get(whole))) for of in networks.values())]
    ]
    for rewrite in (name.removeprefix(prefix) for name in left_out):
        rows.append([f"`{rewrite}`", *(column.effects.get(rewrite, NONE) for column in columns)])
    text = f"## Without each rewrite: times {time}\n\n"
    if any(column.noise for column in columns):
        text += NOISE
        rows.append(["*one that fired nowhere*", *(spread(column.noise) for column in columns)])
    return text + markdown(["left out", *map(name_of, networks)], rows)


class Column:
    """Of a network: by each rewrite that fired in it, what its absence costs; and of those that did not the ratios."""

    def __init__(self, systems: dict[str, dict], whole: str, prefix: str) -> None:
        self.effects: dict[str, str] = {}
        self.noise: list[float] = []
        for name, row in systems.items():
            if not name.startswith(prefix) or not median(row) or not median(systems.get(whole)):
                continue
            times, rewrite = median(row) / median(systems[whole]), name.removeprefix(prefix)
            if fires_in(systems[whole], rewrite):
                self.effects[rewrite] = f"{times:.2f}"
            else:
                self.noise.append(times)


def fires_in(row: dict, rewrite: str) -> bool:
    """As `explain` says. Where that was not asked, as older reports did not, it may have."""
    explained = row.get("explain")
    return explained is None or bool(re.search(rf"^  rewrite +{rewrite}: \d+ times", explained, re.MULTILINE))


def spread(ratios: list[float]) -> str:
    if not ratios:
        return NONE
    ends = dict.fromkeys(f"{end:.2f}" for end in (min(ratios), max(ratios)))
    return f"{'–'.join(ends)} ({len(ratios)})"


def seconds(value: float | None) -> str:
    return f"{value:.2f}" if value else NONE
