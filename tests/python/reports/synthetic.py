"""A document as the engine makes it, of any number of tasks, without running anything."""

import random

OPERATORS = ["convolution", "batch_norm", "relu", "add", "cat", "mm", "softmax"]


def synthetic_document(tasks: int, streams: int, seed: int = 0) -> dict:
    """Chains on streams that wait for each other now and then."""
    chance = random.Random(seed)
    free = [0] * streams
    last: list[int | None] = [None] * streams
    made, edges, waits = [], [], []
    for index in range(tasks):
        stream = chance.randrange(streams) if index else 0
        start = free[stream]
        if last[stream] is not None:
            edges.append([last[stream], index])
        other = chance.randrange(streams)
        if (last[stream] is None or chance.random() < 0.12) and last[other] is not None and other != stream:
            edges.append([last[other], index])
            waits.append([last[other], index])
            start = max(start, free[other] + 1000)
        cost = int(chance.expovariate(1 / 9000)) + 1500
        operator = chance.choice(OPERATORS)
        block = index * 40 // tasks
        made.append(
            {
                "name": f"{operator}#{index}",
                "operator": f"aten::{operator}",
                "inputs": ["f32[1, 64, 56, 56]", "f32[64, 64, 3, 3]"],
                "outputs": ["f32[1, 64, 56, 56]"],
                "module": f"layers.{block}.{operator}",
                "node": "",
                "where": f"model.py:{block + 10} in forward",
                "stream": stream,
                "cost": cost,
                "planned": [start, start + cost],
                "measured": [start, start + cost + chance.randrange(800)],
            }
        )
        free[stream] = made[-1]["measured"][1]
        last[stream] = index
    buffers = [
        {
            "name": f"%{index}",
            "scratch": index % 7 == 0,
            "offset": chance.randrange(24) * 65536,
            "bytes": chance.choice([16384, 65536, 262144]),
            "uses": [index, min(tasks - 1, index + 1 + chance.randrange(3))],
        }
        for index in range(0, tasks - 1, 2)
    ]
    length = max(task["measured"][1] for task in made)
    work = sum(task["cost"] for task in made)
    path = [index for index in range(tasks) if made[index]["stream"] == 0]
    host, kernels, now = [], [], 0
    for task in made:
        host.append([task["operator"], now, now + 9000, "[1, 64, 56, 56]"])
        kernels.append([f"kernel_{task['name']}", now + 7000, now + 7000 + task["cost"] // 2, ""])
        now += max(11000, task["cost"] // 2 + 100)
    part = {
        "name": "replay",
        "device": "cpu",
        "then_on_host": "",
        "streams": streams,
        "threads_per_stream": 1,
        "degree_of_concurrency": streams,
        "dependencies": 2 * len(edges),
        "replay": length * 0.95,
        "replays": 100,
        "launch": 0,
        "planned_total": length,
        "critical_path_length": work // 2,
        "work": work,
        "clock": 0,
        "plan_milliseconds": 1.5,
        "tune_milliseconds": 30.0,
        "tried": [
            {"streams": 1, "threads_per_stream": 2, "milliseconds": work / 1e6, "rejected": ""},
            {"streams": streams, "threads_per_stream": 1, "milliseconds": length / 1e6, "rejected": ""},
        ],
        "kernels": [
            {
                "like": "matrix_convolution(1x64x35x35, 96x64x3x3)",
                "tasks": 6,
                "from": kernel,
                "to": other,
                "milliseconds_before": before,
                "milliseconds_after": after,
                "kept": after < before,
            }
            for kernel, other, before, after in [("0", "1", 0.452, 0.444), ("1", "2", 0.444, 0.461)]
        ],
        "kernels_milliseconds": 120.0,
        "tasks": made,
        "edges": edges,
        "waits": waits,
        "critical_path": path,
        "memory": {
            "arena": 28 * 65536,
            "one_stream_bound": 20 * 65536,
            "allocated": sum(buffer["bytes"] for buffer in buffers),
            "unplanned_allocations": 0,
            "inputs_and_results": 0,
            "workspaces": 0,
            "outside": 4 << 20,
            "constants": 0,
            "buffers": buffers,
        },
    }
    return {
        "title": "Synthetic",
        "device": "cpu",
        "device_name": "no machine at all",
        "versions": {"nimble": "0", "torch": "0"},
        "stats": {},
        "signatures": [
            {
                "signature": "(f32[1, 3, 224, 224])",
                "state": "replayed",
                "reason": "",
                "replays": 3,
                "record_milliseconds": 12.0,
                "tasks": tasks,
                "notes": [
                    {
                        "what": "folded",
                        "subject": "arange#4",
                        "how": "nothing but constants goes into it",
                        "where": "model.py:3 in forward",
                        "module": "",
                    }
                ],
                "shown": True,
            },
            {
                "signature": "(f32[2, 3, 224, 224])",
                "state": "eager",
                "reason": "aten::nonzero cannot be replayed: the shape of its result depends on data",
                "replays": 0,
                "record_milliseconds": 0.0,
                "tasks": 0,
                "notes": [],
                "shown": False,
            },
        ],
        "parts": [part],
        "eager": {
            "run": now * 0.8,
            "runs": 50,
            "profiled": now,
            "lanes": [
                {"name": "host", "kind": "host", "spans": host},
                {"name": "GPU 7", "kind": "device", "spans": kernels},
            ],
        },
    }
