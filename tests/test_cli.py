"""The command line: what each verb hands to the library (replaced by recorders here), and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
import types
import typing
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cosmos_reason
from cosmos_reason import cli
from cosmos_reason.errors import DataError, UserError
from cosmos_reason.types import Kind

VERBS = ("ask", "simulate", "sft", "claims", "speed", "quickstart", "doctor")


def run(*arguments: str) -> typing.Any:
    return CliRunner().invoke(cli.app, arguments)


def replace_module(monkeypatch: pytest.MonkeyPatch, name: str, **members: object) -> None:
    """Put a stand-in where `from cosmos_reason.x import y` and `from cosmos_reason import x` look."""
    module = types.ModuleType(f"cosmos_reason.{name}")
    for key, value in members.items():
        setattr(module, key, value)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    parent_name, _, leaf = module.__name__.rpartition(".")
    parent = sys.modules.get(parent_name)
    if parent is None or parent_name != "cosmos_reason":
        parent = types.ModuleType(parent_name)
        monkeypatch.setitem(sys.modules, parent_name, parent)
    monkeypatch.setattr(parent, leaf, module, raising=False)


@dataclass(frozen=True)
class Recorded:
    """Stands for AskRequest: takes exactly the fields that the verb fills."""

    video: str
    question: str
    options: tuple[str, ...]
    kind: str | None
    model: str
    fps: float | None
    max_frames: int | None
    start_s: float | None
    end_s: float | None
    timestamps: bool
    strip: Path | None
    max_tokens: int
    temperature: float
    seed: int
    json: bool


def test_help_names_every_verb():
    shown = run("--help")
    assert shown.exit_code == 0
    assert all(f"\n  {verb} " in shown.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb):
    shown = run(verb, "--help")
    assert shown.exit_code == 0
    assert f"cosmos-reason {verb}" in shown.stdout.split("Example", 1)[1]


def test_version():
    assert run("--version").stdout == f"cosmos-reason {cosmos_reason.__version__}\n"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], ()),
        (["left|right"], ("left", "right")),
        (["left | right | up"], ("left", "right", "up")),
        (["left", "right"], ("left", "right")),
        (["a|b", "c"], ("a|b", "c")),  # with several options, a bar belongs to its option
        (["cup, left"], ("cup, left",)),
        (["[Fe(CN)6]|[Cu]"], ("[Fe(CN)6]", "[Cu]")),
    ],
)
def test_split_options(given, wanted):
    assert cli.split_options(given) == wanted


def test_ask_hands_over_everything(monkeypatch):
    seen = []
    replace_module(monkeypatch, "ask", main=seen.append, AskRequest=Recorded)
    given = "--options left --options right --kind choice --model runs/m --fps 4 --max-frames 6 --start 1.5 --end 3"
    more = "--timestamps --strip s.png --max-tokens 9 --temperature 0.5 --seed 3 --json"
    done = run("ask", "a.mp4", "Which way?", *given.split(), *more.split())
    assert done.exit_code == 0, done.output
    assert seen == [
        Recorded(
            video="a.mp4",
            question="Which way?",
            options=("left", "right"),
            kind="choice",
            model="runs/m",
            fps=4.0,
            max_frames=6,
            start_s=1.5,
            end_s=3.0,
            timestamps=True,
            strip=Path("s.png"),
            max_tokens=9,
            temperature=0.5,
            seed=3,
            json=True,
        )
    ]


def test_ask_defaults_are_those_of_the_request(monkeypatch):
    """The verb repeats the defaults for its help; they must not drift from the library's."""
    from cosmos_reason.ask import AskRequest

    seen = []
    replace_module(monkeypatch, "ask", main=seen.append, AskRequest=AskRequest)
    assert run("ask", "a.mp4", "Why?").exit_code == 0
    assert seen == [AskRequest("a.mp4", "Why?")]


def test_kinds_of_ask_are_kinds_of_a_sample():
    assert set(typing.get_args(cli.AskKind)) < set(typing.get_args(Kind))
    assert run("ask", "a.mp4", "Why?", "--kind", "trajectory").exit_code == 2


def test_sft_passes_overrides_in_order(monkeypatch):
    seen = []
    replace_module(monkeypatch, "training.sft", main=lambda *given: seen.append(given) or Path("runs/x/final"))
    done = run("sft", "train/a.yaml", "steps=3", "rollout.group_size=4")
    assert (done.exit_code, done.stdout) == (0, "model: runs/x/final\n")
    assert seen == [("train/a.yaml", ("steps=3", "rollout.group_size=4"))]


def test_simulate_writes_the_asked_families(monkeypatch):
    seen = []

    def write_set(folder, families, clips, first_seed, workers, progress):
        progress(1, 2)
        seen.append((folder, families, clips, first_seed, workers))
        return folder

    replace_module(monkeypatch, "simulate.dataset", write_set=write_set)
    replace_module(monkeypatch, "simulate.registry", FAMILIES=("tower", "ramp"))
    assert run("simulate", "runs/s", "--clips", "3", "--first-seed", "7", "--workers", "1").exit_code == 0
    assert run("simulate", "runs/s", "--families", "ramp").exit_code == 0
    assert seen == [(Path("runs/s"), ("tower", "ramp"), 3, 7, 1), (Path("runs/s"), ("ramp",), 20, 0, 2)]


@pytest.mark.parametrize(("verb", "folder"), [("claims", {}), ("speed", {"folder": "speed"})])
def test_claims_and_speed_return_the_verdict(monkeypatch, verb, folder):
    seen = []
    replace_module(monkeypatch, "claims", main=lambda name, **given: seen.append((name, given)) or 1)
    assert run(verb, "nano", "--quick").exit_code == 1
    assert seen == [("nano", {"json": False, "quick": True, **folder})]


def test_doctor_returns_its_code(monkeypatch):
    replace_module(monkeypatch, "doctor", main=lambda json: 1 if json else 0)
    assert run("doctor", "--json").exit_code == 1
    assert run("doctor").exit_code == 0


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (
            UserError("asked for 0 frames; give --max-frames 1 or more"),
            "asked for 0 frames; give --max-frames 1 or more",
        ),
        (DataError("a.mp4", "no video stream"), "a.mp4: no video stream"),
    ],
)
def test_a_wrong_input_is_one_sentence_and_code_2(monkeypatch, capsys, fault, sentence):
    def main(json: bool) -> int:
        raise fault

    replace_module(monkeypatch, "doctor", main=main)
    monkeypatch.setattr(sys, "argv", ["cosmos-reason", "doctor"])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    printed = capsys.readouterr()
    assert (leaving.value.code, printed.out, printed.err) == (2, "", f"cosmos-reason: {sentence}\n")


def test_a_bug_keeps_its_traceback(monkeypatch):
    def main(json: bool) -> int:
        raise AssertionError("3 vision slots for 4 features")

    replace_module(monkeypatch, "doctor", main=main)
    monkeypatch.setattr(sys, "argv", ["cosmos-reason", "doctor"])
    with pytest.raises(AssertionError, match="3 vision slots"):
        cli.main()


def test_the_real_command_line_on_a_misspelt_claim(tmp_path):
    """One small job through the interpreter itself: module entry, lazy imports, exit code, no traceback."""
    environment = {**os.environ, "PYTHONPATH": str(Path(cosmos_reason.__file__).parent.parent)}
    command = [sys.executable, "-m", "cosmos_reason", "claims", "nanoo"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 2
    assert done.stderr == "cosmos-reason: no script 'nanoo' in benchmarks/claims; did you mean nano?\n"
