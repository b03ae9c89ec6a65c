"""Pictures of the results, readable on white and on black: the ground is left out, lines and letters are grey."""

from __future__ import annotations

from pathlib import Path

from nimble.bench.table import MIB, cells_of, memory_of, trains
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
}
OTHERS = ("#c2255c", "#d6699a", "#a61e4d", "#e599b8", "#862e4a", "#f783ac")


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
            if any(memory_of(row) for row in rows):
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

    figure, axes = pyplot.subplots(figsize=(width, height))
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


def bars(rows: list[dict], value, spread, title: str, unit: str):
    """Horizontal bars: a group for each cell, a bar for each system."""
    cells = cells_of(rows)
    systems = list(dict.fromkeys(row["system"] for row in rows if row["system"] != "eager"))
    titles = {row["system"]: row["title"] for row in rows}
    several = [len({row[key] for row in rows}) > 1 for key in ("batch", "dtype")]
    thick = 0.8 / max(1, len(systems))
    figure, axes = new_axes(9, 1.6 + len(cells) * (0.25 + 0.16 * len(systems)))
    for number, system in enumerate(systems):
        places, lengths, below, above = [], [], [], []
        for place, of_cell in enumerate(cells.values()):
            row = of_cell.get(system)
            length = row and value(row, of_cell)
            if not length:
                continue
            low, high = spread(row, of_cell)
            places.append(place + (number - (len(systems) - 1) / 2) * thick)
            lengths.append(length)
            below.append(max(0.0, length - low))
            above.append(max(0.0, high - length))
        colour = COLOURS.get(system, OTHERS[number % len(OTHERS)])
        errors = {"ecolor": GREY, "elinewidth": 0.9, "capsize": 1.6}
        axes.barh(
            places,
            lengths,
            thick * 0.92,
            xerr=[below, above],
            color=colour,
            label=titles[system],
            error_kw=errors,
        )
        for place, length, over in zip(places, lengths, above, strict=True):
            axes.annotate(
                f"{length:.1f}" if length >= 10 else f"{length:.2f}",
                (length + over, place),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
            )
    axes.set_yticks(range(len(cells)), [label_of(cell, *several) for cell in cells])
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(title, loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure, axes


def speed_ups(rows: list[dict]):
    def value(row: dict, _: dict) -> float | None:
        return row.get("over_eager")

    def spread(row: dict, _: dict) -> tuple[float, float]:
        timing = row["timing"]
        eager = row["over_eager"] * timing["median"]
        return eager / timing["p95"], eager / timing["p5"]

    title = "How many times as fast as eager PyTorch (lines: 5th to 95th percentile of the runs)"
    figure, axes = bars(rows, value, spread, title, "× eager")
    axes.axvline(1, color=GREY, linewidth=1, linestyle="--")
    return figure


def memory(rows: list[dict]):
    def value(row: dict, _: dict) -> float | None:
        size = memory_of(row) if not trains(row) else row.get("memory", {}).get("steady")
        return size / MIB if size else None

    def no_spread(row: dict, of_cell: dict) -> tuple[float, float]:
        size = value(row, of_cell)
        return size, size

    return bars(rows, value, no_spread, "Device memory", "MiB")[0]


def batch_sizes(rows: list[dict]):
    figure, axes = new_axes(8, 4.5)
    lines: dict[tuple, list[dict]] = {}
    for row in rows:
        if row["system"] in ("eager", "nimble"):
            lines.setdefault((row["workload"], row["dtype"], row["system"]), []).append(row)
    workloads = list(dict.fromkeys(workload for workload, _, _ in lines))
    colours = [*COLOURS.values()][1:]
    for (workload, dtype, system), points in lines.items():
        points.sort(key=lambda row: row["batch"])
        axes.plot(
            [row["batch"] for row in points],
            [row["batch"] / row["timing"]["median"] * 1e3 for row in points],
            color=colours[workloads.index(workload) % len(colours)],
            linestyle="--" if system == "eager" else "-",
            marker=".",
            label=f"{workload.removeprefix('training/')} {dtype}, {points[0]['title']}",
        )
    axes.set(xscale="log", yscale="log", xlabel="batch size", ylabel="examples a second")
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_title("Throughput by batch size (dashed: eager)", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
