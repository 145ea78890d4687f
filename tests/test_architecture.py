"""The shape of the library, read from its syntax trees: arrows, cycles, declared packages, sizes, broad excepts.

Imports inside functions count like any other: a late import hides an arrow from the interpreter, not from a reader.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "cosmos_reason"
NAME = "cosmos_reason"

# unit -> units that it may import. A unit is a folder of the library or a module at its top.
GROUND = {"types", "errors", "config", "ontology"}
SEEING = GROUND | {"video", "text"}
THINKING = SEEING | {"model", "numerics"}
ANSWERING = THINKING | {"backends"}
MEASURING = ANSWERING | {"simulate", "curator", "evaluation"}
ARROWS = {
    "types": set(),
    "errors": set(),
    "config": {"errors"},
    "ontology": {"errors", "config"},
    "video": GROUND,
    "text": GROUND,
    "model": SEEING,
    "numerics": SEEING,
    "backends": THINKING,
    "simulate": ANSWERING,
    "curator": ANSWERING,
    "evaluation": ANSWERING | {"simulate"},  # the held-out test is simulated
    "training": MEASURING,
    "compress": MEASURING | {"training"},
    "checkpoint": GROUND,
    "selection": GROUND,
    "server": GROUND | {"backends", "evaluation"},
    # the verbs: they join the parts and only cli imports them
    "ask": ANSWERING,
    "claims": GROUND,
    "doctor": GROUND | {"video", "simulate"},  # it asks them what they would take
    "quickstart": MEASURING | {"training"},
    "cli": GROUND | {"ask", "claims", "doctor", "quickstart", "simulate", "training"},
    "__main__": {"cli"},
}
ONLY_IN = {"mujoco": "simulate", "metaworld": "simulate", "highway_env": "simulate", "ray": "curator"}
NEVER = {"gradio", "benchmarks", "train", "demo", "tests"}  # the library imports no application
EXTRAS_OF = {"simulate": {"sim"}, "training": {"train"}, "curator": {"curate"}, "server": {"serve"}}
# packages that are used when they are there, behind a check, and never required
IF_PRESENT = {"torchcodec", "mamba_ssm", "causal_conv1d"}

FILE_LINES, FUNCTION_LINES, P95_LINES, BROAD_EXCEPTS = 600, 150, 66, 3


@cache
def trees() -> dict[str, ast.Module]:
    """Dotted module name -> its syntax tree."""
    found = {}
    for path in sorted(LIBRARY.rglob("*.py")):
        parts = (NAME, *path.relative_to(LIBRARY).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports_of(module: str) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of everything that a module imports at run time; names of a package may be its modules."""
    for node in ast.walk(trees()[module]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{module}:{node.lineno}: write imports from the top of the package"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield (whole if whole in trees() else node.module), node.lineno


def unit_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else NAME


def test_arrows_run_one_way():
    wrong = []
    for module in trees():
        unit = unit_of(module)
        for target, line in imports_of(module):
            if target.split(".")[0] == NAME and unit_of(target) not in (unit, NAME):
                assert unit in ARROWS, f"{unit} has no place among the arrows: give it one in ARROWS"
                if unit_of(target) not in ARROWS[unit]:
                    wrong.append(f"{module}:{line} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_the_table_of_arrows_has_no_circle():
    done: set[str] = set()
    while len(done) < len(ARROWS):
        ready = {unit for unit, below in ARROWS.items() if unit not in done and below <= done}
        assert ready, f"circle among {set(ARROWS) - done}"
        done |= ready


def test_no_import_cycles():
    """Within folders too, where the arrows say nothing."""
    graph = {m: {t for t, _ in imports_of(m) if t in trees() and t not in (m, NAME)} for m in trees()}
    while leaves := {module for module, below in graph.items() if not below & graph.keys()}:
        graph = {module: below for module, below in graph.items() if module not in leaves}
    assert not graph, f"cycle within {sorted(graph)}"


def test_heavy_packages_stay_in_their_folder():
    wrong = [
        f"{module}:{line} imports {target}"
        for module in trees()
        for target, line in imports_of(module)
        if (top := target.split(".")[0]) in NEVER or ONLY_IN.get(top, unit_of(module)) != unit_of(module)
    ]
    assert not wrong, "\n".join(wrong)


@cache
def declared() -> tuple[set[str], dict[str, set[str]]]:
    """Distribution names in pyproject.toml: the core ones, and those of each extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def name(requirement: str) -> str:
        head = requirement
        for mark in "[><=!~; ":
            head = head.split(mark)[0]
        return head.lower().replace("_", "-")

    extras = {extra: {name(r) for r in wanted} for extra, wanted in project["optional-dependencies"].items()}
    return {name(r) for r in project["dependencies"]}, extras


def test_only_declared_packages_are_imported():
    core, extras = declared()
    owners = metadata.packages_distributions()
    wrong = []
    for module in trees():
        allowed = core.union(*(extras[extra] for extra in EXTRAS_OF.get(unit_of(module), ())))
        for target, line in imports_of(module):
            top = target.split(".")[0]
            if top in sys.stdlib_module_names | IF_PRESENT | {NAME}:
                continue
            distributions = {d.lower().replace("_", "-") for d in owners.get(top, [top])}
            if not distributions & allowed:
                wrong.append(f"{module}:{line} imports {top}")
    assert not wrong, "not declared for this folder in pyproject.toml:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "statement",
    [
        "import cosmos_reason.types, cosmos_reason.errors, cosmos_reason.config, cosmos_reason.ontology",
        "import cosmos_reason.video",
        "from cosmos_reason.cli import app; app(['--help'], standalone_mode=False)",
        "from cosmos_reason.cli import app; app(['ask', '-h'], standalone_mode=False)",
    ],
    ids=["ground", "video", "help", "ask_help"],
)
def test_torch_is_not_imported(statement):
    heavy = {"torch", "transformers", "accelerate", "mujoco"}
    if "cli" in statement:  # what makes --help answer at once, whatever the machine's speed
        heavy |= {"numpy", "decord", "av", "yaml", "rich"}
    code = f"{statement}\nimport sys\nprint('loaded:', *sorted({heavy!r} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines()[-1].strip() == "loaded:"


def functions() -> list[tuple[int, str]]:
    """(lines, where) of every function and method, decorators and docstring included."""
    return [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{module}.{node.name}")
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_sizes_stay_within_the_budget():
    for path in LIBRARY.rglob("*.py"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= FILE_LINES, f"{path.relative_to(ROOT)}: {lines} lines, at most {FILE_LINES}; split it"
    sizes = sorted(functions())
    assert sizes[-1][0] <= FUNCTION_LINES, f"{sizes[-1]}: longest function, at most {FUNCTION_LINES} lines"
    p95 = sizes[int(0.95 * (len(sizes) - 1))]
    assert p95[0] <= P95_LINES, f"{p95}: 95th percentile of function lengths, at most {P95_LINES}"


def test_broad_excepts_are_few_and_say_whose_fault_they_absorb():
    broad, silent = [], []
    for module, tree in trees().items():
        source = (LIBRARY.parent / Path(*module.split("."))).with_suffix(".py")
        source = source if source.is_file() else source.with_suffix("") / "__init__.py"
        lines = source.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None or _names(node.type) & {"Exception", "BaseException"}
            ):
                broad.append(f"{module}:{node.lineno}")
                if "#" not in lines[node.lineno - 1]:
                    silent.append(f"{module}:{node.lineno}")
    assert len(broad) <= BROAD_EXCEPTS, f"more than {BROAD_EXCEPTS} broad excepts: {broad}"
    assert not silent, f"say on the line whose fault is absorbed: {silent}"


def _names(node: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def test_public_functions_are_typed_and_every_file_begins_with_its_map():
    wrong = [f"{module}: no docstring" for module, tree in trees().items() if not ast.get_docstring(tree)]
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.returns is None:
                wrong.append(f"{module}:{node.lineno} {node.name} has no return type")
    assert not wrong, "\n".join(wrong)
