"""A worker, seen from outside: a process that can be ended when its time is up."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

from nimble.bench.job import Job


class Stopped(Exception):
    """The worker failed or its time is up; the text says which."""


class Child:
    def __init__(self, job: Job, compiler_threads: int, host_threads: int | None = None) -> None:
        """With `host_threads` for operators on the host, or as many as PyTorch takes by itself."""
        self.job = job
        self.start = time.monotonic()
        # A cache of its own: what another system compiled before would make this one's preparation look cheap.
        self.cache = tempfile.TemporaryDirectory(prefix="nimble-bench-", ignore_cleanup_errors=True)
        settings = {
            "TORCHINDUCTOR_CACHE_DIR": self.cache.name,
            "TORCHINDUCTOR_COMPILE_THREADS": str(compiler_threads),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        if host_threads:
            settings["OMP_NUM_THREADS"] = str(host_threads)
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nimble.bench.worker", job.to_json()],
            env=os.environ | settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            start_new_session=True,  # with the compiler's workers in one group that can be ended as a whole
        )
        self.lines: queue.Queue[dict | None] = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def answer(self, deadline: float) -> dict:
        """Its next line."""
        try:
            found = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise Stopped(f"not ready after {time.monotonic() - self.start:.0f} s") from None
        if found is None:
            # Until it has its own exit status, but keeps its number, by which `stop` finds all that it started.
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
            self.stop()
            raise Stopped(f"its process ended: {self.last_error()}")
        return found

    def wait_until_made(self, deadline: float) -> None:
        """Until it does nothing but wait for its turn. If it does not come to that, its own turn will tell why."""
        try:
            found = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return
        if found is None or "made" not in found:
            self.lines.put(found)

    def go(self) -> None:
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the next answer says why

    def last_error(self) -> str:
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors if line.strip()]
        return lines[-1][:300] if lines else f"exit status {self.process.returncode}"

    def stop(self) -> None:
        """With its whole group, also where the worker itself is over: a compiler's workers would run on beside whoever
        is measured next. Not once it was waited for: its number may be another's by then."""
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def end(self) -> None:
        self.stop()
        self.cache.cleanup()
        self.errors.close()
