"""`nimble bench`: the benchmark suite."""

from nimble.bench.arguments import add_arguments
from nimble.bench.main import run

SUMMARY = "time Nimble against what people use today"

__all__ = ["SUMMARY", "add_arguments", "run"]
