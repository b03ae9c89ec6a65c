"""The process that does one job: `python -m nimble.bench.worker JOB`.

Says what it found in lines of JSON, on what was its standard output: libraries that print there do not disturb it.
Makes its network on the host, waits for a line on its input, runs eager for the first time, waits for another, prepares
its systems, waits for a third, times them in turn and then Nimble's tasks, and profiles last, since timings after
profiling are off. What comes before the first line takes seconds, in which the job before it runs eager for the first
time; nobody is prepared or timed meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict

import torch

import nimble
from nimble.bench import inference, training
from nimble.bench.active import active_share
from nimble.bench.entrant import Entrant
from nimble.bench.job import Job
from nimble.bench.machine import clocks
from nimble.bench.measure import host_microseconds, time_in_turn
from nimble.bench.systems import System
from nimble.bench.workloads import Inference

PROFILED = ("eager", "cuda-graph", "nimble-one-stream", "nimble")
HOST_TIME_LIMIT_MS = 200  # calls that take longer keep the host busy by themselves


class Pipe:
    """Lines of JSON to the parent. Everything else that is written to standard output goes to standard error."""

    def __init__(self) -> None:
        self.file = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def say(self, **what) -> None:
        print(json.dumps(what), file=self.file, flush=True)


def watch_parent() -> threading.Semaphore:
    """Released whenever the parent says that work may go on. When the parent is gone, so is this process, with all that
    a compiler has started in its group."""
    go = threading.Semaphore(0)

    def watch() -> None:
        # Not sys.stdin, whose lock this thread would hold when the interpreter ends.
        while os.read(0, 1):
            go.release()
        os.killpg(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    return go


def use_settings(deterministic: bool) -> None:
    """The same for everybody: float32 with TF32 convolutions, the fastest kernels that cuDNN finds."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.deterministic = deterministic


def in_words(error: BaseException) -> str:
    """In one line, with files named but not where they lie: reports are read elsewhere."""
    text = re.sub(r"(?<![\w.])/(?:[^\s/\"']+/)+", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text}"[:400]


def prepare_all(job: Job, prepare: Callable[[System], Entrant], pipe: Pipe) -> list[Entrant]:
    entrants = []
    for system in job.systems:
        pipe.say(doing=f"{system.title}: preparing")
        try:
            system.need_packages()
            entrants.append(prepare(system))
        except torch.AcceleratorError as error:
            pipe.say(system=system.name, failed=in_words(error))
            raise  # nothing works on a GPU after this
        except Exception as error:  # a competitor may fail in any way; its row says how
            pipe.say(system=system.name, failed=in_words(error))
            continue
        pipe.say(system=system.name, row=entrants[-1].row)
    return entrants


def measure(job: Job, entrants: list[Entrant], pipe: Pipe) -> None:
    pipe.say(doing="timing")
    if not entrants:
        return
    timings = time_in_turn({entrant.system.name: entrant.run for entrant in entrants}, job.amount)
    state = clocks()  # at once, while they are what they were
    for name, timing in timings.items():
        found = {"timing": asdict(timing), "clocks": state}
        if "eager" in timings:
            found["over_eager"] = timings["eager"].median / timing.median
        pipe.say(system=name, row=found)
    for entrant in entrants:
        if entrant.measured and job.tasks_alone:
            pipe.say(doing=f"{entrant.system.title}: timing each task alone")
            pipe.say(system=entrant.system.name, row=measured_of(entrant))
    if job.device.type != "cuda":
        return
    for entrant in entrants:
        if timings[entrant.system.name].median < HOST_TIME_LIMIT_MS:
            pipe.say(system=entrant.system.name, row={"host_microseconds": host_microseconds(entrant.run)})
    if job.profile:
        pipe.say(doing="profiling")
        for entrant in worth_profiling(entrants):
            share = active_share(entrant.run)
            if share is not None:
                pipe.say(system=entrant.system.name, row={"active_share": share})


def measured_of(entrant: Entrant) -> dict:
    try:
        return entrant.measured()
    except (RuntimeError, nimble.Error) as error:  # there may be no memory left for one more capture
        return {"critical_path_failed": in_words(error)}


def worth_profiling(entrants: list[Entrant]) -> list[Entrant]:
    """A compiler, or those whom the exhibits compare; of variants the profiler has nothing new to tell."""
    compilers = [entrant for entrant in entrants if entrant.system.own_process]
    return compilers or [entrant for entrant in entrants if entrant.system.name in PROFILED]


def main() -> None:
    job = Job.from_json(sys.argv[1])
    pipe = Pipe()
    go = watch_parent()
    use_settings(job.deterministic)
    if job.device.index:
        torch.cuda.set_device(job.device)  # for what asks for no device: streams, memory, captures
    if job.device.type == "cuda":
        torch.cuda.init()
    infers = isinstance(job.workload, Inference)
    preparing = inference if infers else training
    # Not in inference mode: tensors made there have no versions, by which derived weights follow their sources.
    with torch.set_grad_enabled(not infers):
        made = preparing.make(job)
        pipe.say(made=True)
        go.acquire()
        pipe.say(doing="eager: the first runs")
        prepare = preparing.preparer(job, made)
        pipe.say(ran=True)
        go.acquire()
        entrants = prepare_all(job, prepare, pipe)
        pipe.say(ready=True)
        go.acquire()
        measure(job, entrants, pipe)
    pipe.say(done=True)


if __name__ == "__main__":
    main()
