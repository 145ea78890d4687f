"""Documents: every path, link, command, option and make target that they name exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from cosmos_reason import cli

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TOP = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")} - {"runs"}
PLACES = (ROOT, ROOT / "cosmos_reason")  # where a path in a document may begin
PATH = re.compile(r"[\w.-]*[\w-](?:/[\w.-]+)*/?")
FILES = (".py", ".md", ".yaml", ".toml", ".txt", ".html")


def code_of(document: Path) -> Iterator[str]:
    """Every line of a code block and every code span, as written."""
    text = document.read_text(encoding="utf-8")
    for block in re.findall(r"^```\w*\n(.*?)^```", text, flags=re.S | re.M):
        yield from (line.split("  #")[0].strip() for line in block.splitlines() if line.strip())
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def cases() -> list[tuple[str, str]]:
    return [(document.relative_to(ROOT).as_posix(), code) for document in DOCUMENTS for code in code_of(document)]


def names_a_path(word: str) -> bool:
    """Words such as `train/sft.yaml`, `ontology/` or `constraints.txt`; outputs and one's own clips are not."""
    if not PATH.fullmatch(word) or word.startswith("runs/"):
        return False
    top = word.split("/")[0]
    return top in TOP or (word.endswith(FILES) and "/" in word) or word.endswith("/") or (ROOT / word).exists()


@pytest.mark.parametrize(("document", "code"), cases())
def test_paths_exist(document, code):
    for word in shlex.split(code) if code.count('"') % 2 == 0 and "'" not in code else code.split():
        path = word.partition("=")[2] or word
        if names_a_path(path):
            assert any((place / path).exists() for place in PLACES), f"{document} names {path}, which does not exist"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            assert (document.parent / target).exists(), f"link to {target}"


@pytest.mark.parametrize(("document", "code"), [case for case in cases() if case[1].startswith("cosmos-reason")])
def test_commands_parse(document, code):
    """Verb, arguments and options are understood; nothing is run. A bare verb in a table needs no arguments."""
    words = shlex.split(code)[1:]
    root = typer.main.get_command(cli.app)
    if not words or words[0].startswith("-"):
        return
    assert words[0] in root.commands, f"{document}: no verb {words[0]}"
    if words[1:]:
        root.commands[words[0]].make_context(words[0], words[1:])


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named = {word for _, code in cases() if code.startswith("make") for word in code.split("  ")[0].split()[1:]}
    assert {"quickstart", "test"} <= named
    assert named - {"PYTHON"} <= targets


def test_every_verb_stands_in_the_readme():
    verbs = typer.main.get_command(cli.app).commands
    written = [code for document, code in cases() if document == "README.md"]
    assert [verb for verb in verbs if f"cosmos-reason {verb}" not in written] == []


def test_ci_calls_what_the_readme_says():
    assert "make test\n" in (ROOT / ".ci" / "run").read_text()
    assert ("README.md", "make test") in cases()


def test_every_decision_is_listed():
    folder = ROOT / "docs" / "decisions"
    listed = set(re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text()))
    assert listed == {path.name for path in folder.glob("0*.md")}
