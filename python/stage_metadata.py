"""Writes the metadata beside the staged package, so that its entry points are found without installing it.

stage_metadata.py PYPROJECT VERSION FOLDER
"""

import shutil
import sys
import tomllib
from pathlib import Path


def entry_points(project: dict) -> str:
    groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    sections = []
    for group, entries in groups.items():
        lines = [f"{name} = {target}" for name, target in entries.items()]
        sections.append("\n".join([f"[{group}]", *lines]))
    return "\n\n".join(sections) + "\n"


def main(pyproject: Path, version: str, folder: Path) -> None:
    project = tomllib.loads(pyproject.read_text())["project"]
    name = project["name"]
    for stale in folder.glob(f"{name}-*.dist-info"):
        shutil.rmtree(stale)
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points(project))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
