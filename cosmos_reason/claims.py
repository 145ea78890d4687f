"""`cosmos-reason claims` and `speed`: find a script in benchmarks/, run it in a process of its own, read its last line.

A script takes `--quick` and prints, last, one JSON line {"ok": bool, "figures": {...}, "bars": {...}}; it exits with 0
only if all bars hold and with 2 when the user's input is at fault.
"""

from __future__ import annotations

import difflib
import json as jsonlib
import subprocess
import sys
from pathlib import Path
from typing import Any

from cosmos_reason import config
from cosmos_reason.errors import UserError

PARTS = {"ok", "figures", "bars"}


def main(name: str | None, *, json: bool = False, quick: bool = False, folder: str = "claims") -> int:
    """Measure `benchmarks/<folder>/<name>.py`, or list the names without one; returns the exit code.

    With `json`, standard output holds the final line alone and the script's other lines go to standard error.
    """
    home = config.data_folder("benchmarks") / folder
    if name is None:
        for known in names(home):
            print(f"{known:16} {first_line(home / f'{known}.py')}")
        if not names(home):
            print(f"nothing to measure for {folder} yet")
        return 0
    script = find(home, name)
    code, last = run(script, ["--quick"] if quick else [], to_stderr=json)
    if code == 2:
        return 2  # the script has said what is wrong with the input
    verdict = read_verdict(last)
    if verdict is None:
        print(f"{script}: ended with code {code} without its JSON line of ok, figures and bars", file=sys.stderr)
        return 1
    print(last)
    return 0 if code == 0 and verdict["ok"] else 1


def names(home: Path) -> list[str]:
    """The scripts of a folder that may not exist, by name."""
    return sorted(path.stem for path in home.glob("*.py") if not path.stem.startswith("_"))


def first_line(script: Path) -> str:
    """What a script says of itself, for the list."""
    return script.read_text(encoding="utf-8").split("\n", 1)[0].strip('"')


def find(home: Path, name: str) -> Path:
    """The script called `name`, hyphens or underscores alike; UserError names the nearest, or all, if there is none."""
    known = names(home)
    name = name.replace("-", "_")
    if name in known:
        return home / f"{name}.py"
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(known) or 'none yet'}"
    raise UserError(f"no script {name!r} in benchmarks/{home.name}; {hint}")


def run(script: Path, arguments: list[str], *, to_stderr: bool) -> tuple[int, str]:
    """Run with this interpreter, pass lines on as they come; (exit code, last line, which is not passed on)."""
    command = [sys.executable, "-u", str(script), *arguments]
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", errors="replace") as process:
        assert process.stdout is not None, "stdout was asked for as a pipe"
        for line in process.stdout:
            if last:
                print(last, file=sys.stderr if to_stderr else sys.stdout, flush=True)
            last = line.rstrip("\n")
    if read_verdict(last) is None:
        print(last, file=sys.stderr)
    return process.returncode, last


def read_verdict(line: str) -> dict[str, Any] | None:
    """The final line as an object, or None when it is something else."""
    try:
        verdict = jsonlib.loads(line)
    except jsonlib.JSONDecodeError:
        return None
    return verdict if isinstance(verdict, dict) and verdict.keys() >= PARTS else None
