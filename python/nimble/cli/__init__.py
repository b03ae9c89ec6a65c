"""The command line: `nimble` once installed, or `python -m nimble`. One file for each command."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import nimble
from nimble.bench.check import NotEagers
from nimble.cli import bench, doctor, plan, report, run
from nimble.cli.outputs import forget_standard_output
from nimble.cli.users_code import ModelFailed
from nimble.exit_codes import (
    BROKEN,
    FINE,
    INTERRUPTED,
    MODEL_FAILED,
    REFUSED,
    UNREAD,
    WRONG_INPUT,
    WrongInput,
)
from nimble.nearest import find
from nimble.packages import MissingPackage

COMMANDS = {"run": run, "bench": bench, "report": report, "doctor": doctor}

EPILOG = """\
examples:
  nimble doctor               what is installed, and what would not work
  nimble run resnet50         eager and Nimble, side by side
  nimble bench --quick        a minute's look at the benchmark suite
  nimble plan net.json        streams, waits and memory of a task graph

`nimble COMMAND --help` shows more. Exit status: 0 fine; 1 broken (a result that is not eager's, a wrong schedule, an
installation that does not work); 2 a wrong command line, name or file, or a missing package; 3 a model that cannot be
replayed; 4 an error in the model's own code; 130 interrupted; 141 nobody reads the output any more.
"""


def cmake_path() -> Path:
    """What CMAKE_PREFIX_PATH has to hold for find_package(Nimble). WrongInput where this package is not installed, but
    lies in a build folder."""
    path = Path(nimble.__file__).parent / "lib" / "cmake"
    if not path.exists():
        raise WrongInput(
            "the C++ library is not installed with this package: `cmake --install BUILD --prefix PREFIX` does that, "
            "and PREFIX is the path for CMAKE_PREFIX_PATH"
        )
    return path


def parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="nimble",
        description="PyTorch programs, scheduled ahead of time",
        epilog=EPILOG,
        formatter_class=layout,
    )
    top.add_argument("--version", action="version", version=nimble.__version__)
    top.add_argument("--cmake-path", action="store_true", help="print the path for CMAKE_PREFIX_PATH")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        command.add_arguments(
            commands.add_parser(
                name, help=command.SUMMARY, description=command.__doc__, formatter_class=layout
            )
        )
    commands.add_parser("plan", help=plan.SUMMARY)
    return top


def dispatch(given: list[str]) -> int:
    if given and not given[0].startswith("-"):
        find(given[0], [*COMMANDS, "plan"], "command")
    if given[:1] == ["plan"]:  # before argparse, which would take its --help
        return plan.run(given[1:])
    arguments, rest = parser().parse_known_args(given)
    if rest:
        refuse(rest, arguments.command)
    arguments.given = given[1:]
    if arguments.cmake_path:
        print(cmake_path())
        return FINE
    if arguments.command is None:
        parser().print_help()
        return FINE
    return COMMANDS[arguments.command].run(arguments)


def refuse(rest: list[str], command: str | None) -> None:
    """WrongInput for arguments that a command does not take."""
    name = f"nimble {command}" if command else "nimble"
    option = next((each.partition("=")[0] for each in rest if each.startswith("-")), None)
    if option is None:
        raise WrongInput(f"{name} takes no {rest[0]!r}; {name} --help shows what it takes")
    known = argparse.ArgumentParser(add_help=False) if command else parser()
    if command:
        COMMANDS[command].add_arguments(known)
    find(option, known._option_string_actions, f"option of {name}")
    raise WrongInput(f"{option} stands behind the command: {name} {option}")


def in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def run_command(given: list[str]) -> int:
    """Its exit status. What ends it early is told in a message."""

    def fail(text: str, status: int) -> int:
        print(f"nimble: {text}", file=sys.stderr)
        return status

    try:
        return dispatch(given)
    except BrokenPipeError:
        raise
    except (WrongInput, MissingPackage, OSError) as error:
        return fail(in_words(error), WRONG_INPUT)
    except NotEagers as error:
        return fail(str(error), BROKEN)
    except nimble.ValidationError as error:
        return fail(str(error), BROKEN)
    except ModelFailed as error:
        return fail(str(error), MODEL_FAILED)
    except nimble.Error as error:
        return fail(str(error), REFUSED)
    except KeyboardInterrupt:
        return fail("interrupted", INTERRUPTED)


def main(given: list[str] | None = None) -> int:
    """Runs a command; its exit status."""
    # PyTorch's profiler would say on standard error that there is no GPU, wherever there is none.
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")
    try:
        try:
            return run_command(sys.argv[1:] if given is None else given)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        forget_standard_output()
        return UNREAD
