"""Pictures of the results, readable on white and on black: the ground is left out, lines and letters are grey."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nimble.bench.table import MIB, cells_of, size_of, trains
from nimble.packages import need

GREY = "#7d8590"
# One colour for each system in all pictures; Nimble's is the warm one.
COLOURS = {
    "eager": "#8b949e",
    "torchscript": "#6e7bd9",
    "cuda-graph": "#3d8fd1",
    "cuda-graph-copies": "#7fb6e0",
    "torch-compile": "#2fa36b",
    "torch-compile-reduce-overhead": "#66c08f",
    "torch-compile-max-autotune": "#9ad6b4",
    "torch-compile-whole-step": "#1f7a4f",
    "torch-compile-reduce-overhead-whole-step": "#4fb07c",
    "aot-inductor": "#17a2a2",
    "onnxruntime": "#8f6fc4",
    "openvino": "#b59ad9",
    "nimble-one-stream": "#f0a868",
    "nimble": "#e8590c",
    "nimble-rewrites": "#c2255c",
}
OTHERS = ("#9c36b5", "#d6699a", "#a61e4d", "#e599b8", "#862e4a", "#f783ac")


def pictures(report: dict, folder: Path, name: str) -> list[Path]:
    """Writes each picture as SVG and PNG; gives their paths. Nothing measured, no picture."""
    need("matplotlib", "to draw the results")
    measured = [row for row in report["rows"] if "timing" in row]
    made = []
    for kind, rows in (
        ("inference", [row for row in measured if not trains(row)]),
        ("training", [row for row in measured if trains(row)]),
    ):
        if any(row["system"] != "eager" for row in rows):
            made += save(speed_ups(rows), folder / f"{name}-{kind}-speed")
            if any(size_of(row) for row in rows if row["device"] != "cpu"):
                made += save(memory(rows), folder / f"{name}-{kind}-memory")
            if len({row["batch"] for row in rows}) > 2:
                made += save(batch_sizes(rows), folder / f"{name}-{kind}-batches")
    return made


def new_axes(width: float, height: float):
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams |= {
        "svg.hashsalt": "nimble",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "text.color": GREY,
        "axes.labelcolor": GREY,
        "axes.edgecolor": GREY,
        "xtick.color": GREY,
        "ytick.color": GREY,
    }
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, axis="x", alpha=0.25, color=GREY, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def save(figure, path: Path) -> list[Path]:
    from matplotlib import pyplot

    paths = [path.with_suffix(".svg"), path.with_suffix(".png")]
    figure.savefig(paths[0], transparent=True, bbox_inches="tight", metadata={"Date": None})
    figure.savefig(paths[1], transparent=True, bbox_inches="tight", dpi=160)
    pyplot.close(figure)
    return paths


def label_of(cell: tuple, several_batches: bool, several_dtypes: bool) -> str:
    workload, batch, dtype = cell
    text = workload.removeprefix("training/")
    text += f"\nbatch {batch}" if several_batches else ""
    return text + (f", {dtype}" if several_dtypes else "")


Spread = tuple[float, float, float]  # low, middle, high


def bars(rows: list[dict], value: Callable[[dict], Spread | None], title: str, unit: str):
    """Horizontal bars: a group for each cell, a bar for each system that has a value, a line from low to high."""
    rows = [row for row in rows if value(row)]
    cells = cells_of(rows)
    titles = {row["system"]: row["title"] for row in rows}
    several = [len({row[key] for row in rows}) > 1 for key in ("batch", "dtype")]
    thick = 0.8 / len(titles)
    figure, axes = new_axes(9, 1.6 + len(cells) * (0.25 + 0.16 * len(titles)))
    for number, (system, label) in enumerate(titles.items()):
        found = {place: value(of[system]) for place, of in enumerate(cells.values()) if system in of}
        places = [place + (number - (len(titles) - 1) / 2) * thick for place in found]
        low, middle, high = zip(*found.values(), strict=True)
        below = [m - v for m, v in zip(middle, low, strict=True)]
        above = [v - m for m, v in zip(middle, high, strict=True)]
        axes.barh(
            places,
            middle,
            thick * 0.92,
            xerr=[below, above] if low != high else None,
            color=COLOURS.get(system, OTHERS[number % len(OTHERS)]),
            label=label,
            error_kw={"ecolor": GREY, "elinewidth": 0.9, "capsize": 1.6},
        )
        for place, length, end in zip(places, middle, high, strict=True):
            text = f"{length:.1f}" if length >= 10 else f"{length:.2f}"
            options = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}
            axes.annotate(text, (end, place), **options)
    axes.set_yticks(range(len(cells)), [label_of(cell, *several) for cell in cells])
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(title, loc="left", fontsize=11)
    axes.margins(x=0.08, y=0.01)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    return figure, axes


def speed_ups(rows: list[dict]):
    def value(row: dict) -> Spread | None:
        if row["system"] == "eager" or "over_eager" not in row:
            return None
        timing = row["timing"]
        eager = row["over_eager"] * timing["median"]
        return eager / timing["p95"], row["over_eager"], eager / timing["p5"]

    title = "How many times as fast as eager PyTorch (lines: 5th to 95th percentile of the runs)"
    figure, axes = bars(rows, value, title, "× eager")
    axes.axvline(1, color=GREY, linewidth=1, linestyle="--")
    return figure


def memory(rows: list[dict]):
    def value(row: dict) -> Spread | None:
        size = size_of(row)
        return (size / MIB,) * 3 if size else None

    return bars(rows, value, "Device memory", "MiB")[0]


def batch_sizes(rows: list[dict]):
    figure, axes = new_axes(8, 4.5)
    lines: dict[tuple, list[dict]] = {}
    for row in rows:
        if row["system"] in ("eager", "nimble"):
            lines.setdefault((row["workload"], row["dtype"], row["system"]), []).append(row)
    kinds = list(dict.fromkeys((workload, dtype) for workload, dtype, _ in lines))
    colours = [*COLOURS.values()][1:]
    for (workload, dtype, system), points in lines.items():
        points.sort(key=lambda row: row["batch"])
        axes.plot(
            [row["batch"] for row in points],
            [row["batch"] / row["timing"]["median"] * 1e3 for row in points],
            color=colours[kinds.index((workload, dtype)) % len(colours)],
            linestyle="--" if system == "eager" else "-",
            marker=".",
            label=f"{workload.removeprefix('training/')} {dtype}, {points[0]['title']}",
        )
    sizes = sorted({row["batch"] for row in rows})
    axes.set(xscale="log", yscale="log", xlabel="batch size", ylabel="examples a second")
    axes.set_xticks(sizes, map(str, sizes))
    axes.minorticks_off()
    axes.grid(True, axis="y", alpha=0.25, color=GREY, linewidth=0.6)
    axes.set_title("Throughput by batch size (dashed: eager)", loc="left", fontsize=11)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    return figure
