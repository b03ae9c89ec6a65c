"""A small report, as a run of the suite writes it, for what is made from reports."""

from __future__ import annotations

MIB = 2**20


def timing(median: float) -> dict:
    return {"median": median, "p5": median * 0.9, "p95": median * 1.2, "p99": median * 1.5, "runs": 200}


def row(workload: str, system: str, title: str, batch: int = 1, **found) -> dict:
    return {
        "workload": workload,
        "batch": batch,
        "dtype": "fp32",
        "device": "cuda",
        "system": system,
        "title": title,
        **found,
    }


def report() -> dict:
    stats = {"tasks": 898, "streams": 8, "syncs": 229, "degree_of_concurrency": 15}
    stats |= {"allocated_bytes": 150 * MIB, "record_milliseconds": 30.0, "plan_milliseconds": 12.4}
    inference = "nasnet_a_mobile"
    training = "training/resnet50"
    shared = {"device": 2**31}
    return {
        "format": "nimble-bench",
        "version": 1,
        "command": "nimble bench",
        "machine": {
            "date": "2026-01-02",
            "torch": "2.11.0",
            "processor": "some processor",
            "gpu": "some GPU",
            "cuda": "13.0",
            "cudnn": 91900,
            "driver": "580.1",
        },
        "host_time_from_cpp": {
            "kernels": 50,
            "call_microseconds": 6.2,
            "call_with_shared_results_microseconds": 5.7,
            "graph_launch_microseconds": 2.7,
        },
        "rows": [
            row(
                inference,
                "eager",
                "eager",
                timing=timing(20.0),
                over_eager=1.0,
                active_share=0.1,
                first_run_seconds=1.5,
                memory={"steady": 100 * MIB, "preparing": 110 * MIB, **shared},
                answer="itself",
            ),
            row(
                inference,
                "cuda-graph",
                "CUDA graph, one stream",
                timing=timing(2.5),
                over_eager=8.0,
                owned_bytes=60 * MIB,
                memory={"steady": 62 * MIB, **shared},
                answer="same bits",
            ),
            row(inference, "torch-compile", "torch.compile", failed="not ready after 120 s"),
            row(
                inference,
                "nimble-one-stream",
                "Nimble, one stream",
                timing=timing(2.4),
                over_eager=20 / 2.4,
                answer="same bits",
            ),
            row(
                inference,
                "nimble",
                "Nimble",
                timing=timing(1.0),
                over_eager=20.0,
                active_share=0.6,
                owned_bytes=50 * MIB,
                prepare_seconds=1.25,
                host_microseconds=27.0,
                launch_microseconds=19.0,
                critical_path_milliseconds=0.8,
                stats=stats,
                memory={"steady": 55 * MIB, "preparing": 300 * MIB, **shared},
                answer="same bits",
            ),
            row(
                inference,
                "nimble-unshared-memory",
                "Nimble, no memory shared",
                timing=timing(1.1),
                owned_bytes=150 * MIB,
            ),
            row(inference, "nimble-rewrites", "Nimble, rewritten", timing=timing(0.5)),
            row(inference, "nimble-no-pooling", "Nimble, rewritten but for pooling", timing=timing(0.6)),
            row(
                training,
                "eager",
                "eager",
                batch=32,
                timing=timing(24.0),
                over_eager=1.0,
                memory={"steady": 400 * MIB, "preparing": 400 * MIB},
            ),
            row(
                training,
                "nimble",
                "Nimble",
                batch=32,
                timing=timing(4.0),
                over_eager=6.0,
                owned_bytes=10 * MIB,
                prepare_seconds=2.0,
                memory={"steady": 200 * MIB, "preparing": 800 * MIB},
                answer="close",
            ),
        ],
    }
