"""The wheel: what travels in it, and that it works in an environment of its own, away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHIPPED = ("ontology", "benchmarks")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from the tree as it is, with the build packages of this environment."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The scripts folder of a fresh environment that has this wheel, and borrows only its dependencies from here."""
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home, with_pip=False, symlinks=True)
    site = next((home / "lib").glob("python*/site-packages"))
    # A .pth file adds our packages but doesn't follow their own .pth files: an editable checkout stays invisible.
    borrowed = [p for p in sys.path if p.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join(borrowed))
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")]
    install = [
        *pip,
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--ignore-installed",
        "--no-warn-conflicts",
        str(wheel),
    ]
    done = subprocess.run(install, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return home / "bin"


def call(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)


@pytest.mark.slow
def test_everything_needed_travels(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {p.relative_to(ROOT).as_posix() for p in (ROOT / "cosmos_reason").rglob("*.py")}
    assets = {p.relative_to(ROOT).as_posix() for p in (ROOT / "cosmos_reason" / "assets").rglob("*") if p.is_file()}
    data = {
        f"cosmos_reason/_data/{p.relative_to(ROOT).as_posix()}"
        for folder in SHIPPED
        for p in (ROOT / folder).rglob("*")
        if p.suffix in (".yaml", ".py")
    }
    assert data and code | assets | data <= names, sorted((code | assets | data) - names)
    strangers = {n for n in names if not n.startswith(("cosmos_reason/", "cosmos_reason-"))}
    assert not strangers, f"the wheel claims other names than its own: {strangers}"
    assert wheel.stat().st_size < 64 * 2**20


@pytest.mark.slow
def test_the_installed_package_reads_its_own_data(installed, tmp_path):
    code = (
        "import cosmos_reason, cosmos_reason.config as c, cosmos_reason.ontology as o;"
        "print(cosmos_reason.__file__); print(c.data_folder('ontology')); print(len(o.ids()))"
    )
    done = call([str(installed / "python"), "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    module, folder, count = done.stdout.split()
    assert module.startswith(str(installed.parent)) and folder.startswith(str(installed.parent))
    assert count == "51"


@pytest.mark.slow
def test_the_installed_command_lists_claims_and_answers(installed, tmp_path):
    listed = call([str(installed / "cosmos-reason"), "claims"], tmp_path)
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert (listed.returncode, names) == (0, ["hybrid_throughput", "nano"]), listed.stderr
    clip = ROOT / "cosmos_reason" / "assets" / "clips" / "videos" / "driving.mp4"
    asked = call([str(installed / "cosmos-reason"), "ask", str(clip), "Does the car move?", "--json"], tmp_path)
    assert asked.returncode == 0, asked.stderr
    assert '"answer"' in asked.stdout.splitlines()[-1]
