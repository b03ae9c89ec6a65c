"""One torch.compile system in a process of its own, so that it can be stopped when its time is up.

    python -m benchmarks.train.child MODEL BATCH SYSTEM DEVICE SECONDS [--deterministic]

Prints one line of JSON when it is prepared, waits for a line on its input, is timed in turn with eager, and prints
another line.
"""

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

from benchmarks.measure import as_json, time_in_turn
from benchmarks.train.prepare import are_close, prepare, use_settings
from benchmarks.train.programs import KINDS
from benchmarks.train.systems import COMPILED, eager


def main() -> None:
    name, batch, system, device, seconds = sys.argv[1:6]
    use_settings(device, "--deterministic" in sys.argv)
    plain = prepare(eager, name, int(batch), device)
    compiled = prepare(COMPILED[system], name, int(batch), device)
    random = KINDS[name].draws_random_numbers
    if not are_close(compiled.losses, plain.losses, 0.3 if random else 0.02):
        raise SystemExit(f"its losses {compiled.losses} are not eager's {plain.losses}")
    say({"first_steps_seconds": compiled.first_steps_seconds, "memory": compiled.memory})
    sys.stdin.readline()
    say(as_json(time_in_turn({"eager": plain.run, "compiled": compiled.run}, float(seconds), fewest=10)))


def say(what: dict) -> None:
    print(json.dumps(what), flush=True)


class Child:
    """Such a process, seen from outside."""

    def __init__(
        self,
        name: str,
        batch: int,
        system: str,
        device: str,
        seconds: float,
        deterministic: bool,
        threads: int,
    ) -> None:
        command = [
            sys.executable,
            "-m",
            "benchmarks.train.child",
            name,
            str(batch),
            system,
            device,
            str(seconds),
        ]
        # A cache of its own: what another system compiled before would make this one's preparation look cheap.
        self.cache = tempfile.TemporaryDirectory(prefix="nimble-bench-", ignore_cleanup_errors=True)
        settings = {"TORCHINDUCTOR_CACHE_DIR": self.cache.name, "TORCHINDUCTOR_COMPILE_THREADS": str(threads)}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command + (["--deterministic"] if deterministic else []),
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
            if line.startswith("{"):
                self.lines.put(json.loads(line))
        self.lines.put(None)

    def answer(self, deadline: float) -> dict:
        """Its next line; raises RuntimeError with what is known if none came in time."""
        try:
            found = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise RuntimeError("not ready in time") from None
        if found is None:
            self.process.wait()
            raise RuntimeError(f"failed: {self.last_error()}")
        return found

    def go(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def last_error(self) -> str:
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors if line.strip()]
        return lines[-1][:200] if lines else f"exit status {self.process.returncode}"

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.cache.cleanup()


if __name__ == "__main__":
    main()
