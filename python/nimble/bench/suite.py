"""The run of the suite: first everybody who shares eager's kernels and process, workload by workload; then the
compilers, which prepare side by side, each in a process of its own, and are timed one after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from nimble.bench.child import Child, Stopped
from nimble.bench.job import Job
from nimble.bench.rows import NOT_REACHED, Rows
from nimble.bench.settings import Cell, Settings
from nimble.bench.systems import System

Say = Callable[[str], None]
Entry = tuple[Cell, System]


class Suite:
    """`save` is called with the rows after every job; `say` hears what is being done."""

    def __init__(
        self, settings: Settings, save: Callable[[Rows], None], say: Say, step: Callable[[], None]
    ) -> None:
        self.settings = settings
        self.rows = Rows(settings)
        self.save = save
        self.say = say
        self.step = step
        self.deadline = time.monotonic() + (settings.time_limit or float("inf"))

    @property
    def job_count(self) -> int:
        return len(self.settings.cells()) + len(self.waves_of_compilers())

    def run(self) -> Rows:
        self.save(self.rows)
        cells = self.settings.cells()
        # While a GPU is measured the processor has time to start what comes next.
        ahead = self.settings.device_name.startswith("cuda")
        child = None
        for cell, following in zip(cells, [*cells[1:], None], strict=True):
            child = child or self.start(cell)
            coming = self.start(following) if following and ahead else None
            try:
                self.run_job(child, cell, self.sharers_of(cell), coming)
                self.finish_job()
            except BaseException:
                if coming:
                    coming.end()
                raise
            child = coming
        for wave in self.waves_of_compilers():
            self.run_compilers(wave)
            self.finish_job()
        return self.rows

    def sharers_of(self, cell: Cell) -> list[System]:
        return [s for s in self.rows.systems_of(cell, self.settings.systems) if not s.own_process]

    def waves_of_compilers(self) -> list[list[Entry]]:
        """Those who prepare at the same time. Those who may take longest come last, so that nobody waits for them."""
        entries = [
            (cell, system)
            for cell in self.settings.cells()
            for system in self.rows.systems_of(cell, self.settings.systems)
            if system.own_process
        ]
        entries.sort(key=lambda entry: self.settings.patience_with(entry[1]))
        width = self.settings.side_by_side
        return [entries[start : start + width] for start in range(0, len(entries), width)]

    def finish_job(self) -> None:
        self.save(self.rows)
        self.step()

    def time_is_up(self) -> bool:
        return time.monotonic() >= self.deadline

    def give_up(self, cell: Cell, systems: list[System]) -> None:
        for system in systems:
            self.rows.fail(
                cell, system.name, f"{NOT_REACHED}: the {self.settings.time_limit:.0f} s were over"
            )

    def job(self, cell: Cell, systems: list[System]) -> Job:
        names = tuple(dict.fromkeys(["eager", *(system.name for system in systems)]))
        settings = self.settings
        return Job(
            workload_name=cell.workload.name,
            batch=cell.batch,
            dtype_name=cell.dtype_name,
            device_name=settings.device_name,
            system_names=names,
            amount=settings.amount,
            profile=settings.profile,
            tasks_alone=settings.tasks_alone,
            deterministic=settings.deterministic,
        )

    def start(self, cell: Cell) -> Child:
        """It waits for its turn."""
        return Child(self.job(cell, self.sharers_of(cell)), compiler_threads=1)

    def run_job(self, child: Child, cell: Cell, systems: list[System], coming: Child | None) -> None:
        patience = sum(self.settings.patience_with(system) for system in systems)
        try:
            if self.time_is_up():
                return self.give_up(cell, systems)
            self.say(f"{cell}: making the network")
            child.go()
            if not self.listen(child, cell, systems, "ran", patience):
                return
            if coming:  # nobody disturbs those who are prepared and timed
                coming.wait_until_made(self.deadline)
            child.go()
            if self.listen(child, cell, systems, "ready", patience):
                child.go()
                self.listen(child, cell, systems, "done", self.patience_while_timing(len(systems)))
        finally:
            child.end()

    def run_compilers(self, wave: list[Entry]) -> None:
        if self.time_is_up():
            for cell, system in wave:
                self.give_up(cell, [system])
            return
        children = [self.start_compiler(cell, system, of=len(wave)) for cell, system in wave]
        start = time.monotonic()
        for child in children:
            child.go()
            child.go()  # they prepare side by side anyway
        try:
            ready = []
            for child, (cell, system) in zip(children, wave, strict=True):
                patience = start + self.settings.patience_with(system) - time.monotonic()
                came = self.listen(child, cell, [system], "ready", patience)
                if came and self.rows.is_open(cell, system.name):
                    ready.append((child, cell, system))
                else:
                    child.end()  # its processor time is wanted by the others
            for child, cell, system in ready:
                child.go()
                self.listen(child, cell, [system], "done", self.patience_while_timing(2))
                child.end()
        finally:
            for child in children:
                child.end()

    def start_compiler(self, cell: Cell, system: System, of: int) -> Child:
        """One `of` so many that share the processor. A compiler's workers are idle half of the time, so that each may
        have twice its part of the cores. Threads of operators spin while they wait: where the host only makes networks
        for a GPU, there are no more of those than cores."""
        cores = os.cpu_count() or 1
        part = max(1, cores // of)
        on_gpu = self.settings.device_name.startswith("cuda")
        return Child(self.job(cell, [system]), min(cores, 2 * part), host_threads=part if on_gpu else None)

    def patience_while_timing(self, systems: int) -> float:
        return 60 + 10 * systems * self.settings.amount.most_seconds

    def listen(self, child: Child, cell: Cell, systems: list[System], until: str, patience: float) -> bool:
        """Takes what the worker says into the rows, until it says `until`. False if it does not come to that."""
        deadline = time.monotonic() + patience
        names = {system.name for system in systems}
        try:
            while until not in (message := child.answer(min(deadline, self.deadline))):
                self.take(message, cell, names)
        except Stopped as stopped:
            if self.time_is_up():
                self.give_up(cell, systems)
            for name in names:
                self.rows.fail(cell, name, str(stopped))
            return False
        return True

    def take(self, message: dict, cell: Cell, names: set[str]) -> None:
        if "made" in message or "ran" in message:
            return
        if "doing" in message:
            self.say(f"{cell}: {message['doing']}")
        elif message["system"] not in names:
            return  # the eager that a compiler is compared with, which has a row from elsewhere
        elif "failed" in message:
            self.rows.fail(cell, message["system"], message["failed"])
        else:
            self.rows.add(cell, message["system"], message["row"])
