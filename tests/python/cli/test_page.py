"""docs/command-line.md: its commands work, in order, as they stand there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

from nimble.cli import bench, main

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/command-line.md"
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


def test_every_command_of_the_page_works(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples/graphs", tmp_path / "examples/graphs")
    commands = 0
    for block in BLOCK.finditer(PAGE.read_text()):
        if block["language"] == "python":
            name = re.match(r"# (\w+\.py)\n", block["code"])[1]
            (tmp_path / name).write_text(block["code"])
            continue
        for line in block["code"].splitlines():
            program, *arguments = shlex.split(line)
            assert program == "nimble"
            assert main(arguments) == 0, f"{line}\n{capfd.readouterr().err}"
            out = capfd.readouterr().out
            assert out, line
            if "--json" in arguments:
                json.loads(out)
            commands += 1
    assert commands >= 10


def test_the_page_names_every_option_of_the_suite():
    import argparse

    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    options = {
        option for action in parser._actions for option in action.option_strings if option.startswith("--")
    }
    text = PAGE.read_text()
    missing = [option for option in options - {"--help"} if option not in text]
    assert not missing
