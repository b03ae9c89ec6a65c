"""Errors in the code of a model: what was being done, where, and what went wrong, without the way there through Nimble
and PyTorch."""

from __future__ import annotations

import argparse
import os
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

import nimble
from nimble.exit_codes import WrongInput
from nimble.packages import MissingPackage

NIMBLE = str(Path(nimble.__file__).parent)
ENGINES = (NIMBLE + os.sep, str(Path(torch.__file__).parent) + os.sep)
PYTHON = (sysconfig.get_path("stdlib") + os.sep, "<frozen ")
SITE_PACKAGES = f"{os.sep}site-packages{os.sep}"  # often in a folder of Python's own


class ModelFailed(Exception):
    """The code of a model raised an error; the text is for its author."""


def add_traceback_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--traceback", action="store_true", help="of an error in the model's own code, the whole traceback"
    )


@contextmanager
def users_code(doing: str, whole: bool) -> Iterator[None]:
    """ModelFailed for whatever the model's code raises. Errors of Nimble's own go through."""
    try:
        yield
    except (WrongInput, MissingPackage, nimble.Error):
        raise
    except (Exception, SystemExit) as error:
        if is_nimbles(error):
            raise
        raise ModelFailed(describe(doing, error, whole)) from error


def is_nimbles(error: BaseException) -> bool:
    """Raised by Nimble, or on a way through it that meets no code of the model's. These commands themselves call that
    code, so their own frames tell nothing."""
    commands = os.path.join(NIMBLE, "cli") + os.sep
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    inside = [file.startswith(ENGINES[0]) and not file.startswith(commands) for file in files]
    return inside[-1] or (any(inside) and not own_frames(error))


def describe(doing: str, error: BaseException, whole: bool) -> str:
    if whole:
        return f"{doing} failed\n" + "".join(traceback.format_exception(error)).rstrip()
    frames = own_frames(error)
    lines = [f"{doing} failed"]
    for frame in frames:
        lines.append(f"  {shown(frame.filename)}:{frame.lineno} in {frame.name}")
        if frame.line:
            lines.append(f"    {frame.line}")
    lines.append("".join(traceback.format_exception_only(error)).rstrip())
    lines.append("(the whole traceback: the same command with --traceback)")
    return "\n".join(lines)


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Those of the author's files; where there are none, those of the library that has the model."""
    frames = traceback.extract_tb(error.__traceback__)
    others = [frame for frame in frames if not is_nobodys(frame.filename)]
    return [frame for frame in others if SITE_PACKAGES not in frame.filename] or others


def is_nobodys(filename: str) -> bool:
    of_python = filename.startswith(PYTHON) and SITE_PACKAGES not in filename
    return of_python or filename.startswith(ENGINES)


def shown(filename: str) -> str:
    """As short as it can be said from here."""
    near = os.path.relpath(filename)
    return filename if near.startswith(os.pardir) else near
