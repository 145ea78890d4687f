"""The doctor: its choices and faults on invented machines, and one look at this one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from cosmos_reason import doctor
from cosmos_reason.backends.local import SHIPPED

ALL = dict.fromkeys(doctor.CORE, "1.0")
SOUND = {"decord": "0.6.0", "pyav": "18.1.0", "torchcodec": ""}
HEALTHY = doctor.Examination("0.1.0", "3.11.7", "Linux", 2, 23.5, ALL, SOUND, {"cpu": "2 threads"}, {}, {}, ())


@pytest.mark.parametrize(
    ("packages", "decoders", "renderers", "missing", "faults"),
    [
        (ALL, SOUND, {"osmesa": "works", "egl": "no display"}, [], []),
        (ALL, SOUND, {}, [], []),  # simulation is an extra
        (ALL, SOUND, {"osmesa": "no", "egl": "works"}, [], ["MuJoCo would draw by osmesa, which does not work"]),
        (ALL, {"decord": "", "pyav": "18"}, {}, [], []),
        (ALL, {"decord": "", "pyav": ""}, {}, [], ["no video decoder works"]),
        (ALL, {"decord": "broken: libz", "pyav": ""}, {}, [], ["decord is broken: libz", "no video decoder works"]),
        (
            ALL | {"torch": ""},
            SOUND,
            {},
            ["nano-base"],
            ["torch is not installed", "the shipped model nano-base is missing"],
        ),
    ],
)
def test_faults(packages, decoders, renderers, missing, faults):
    found = doctor.find_faults(packages, decoders, renderers, "osmesa", missing)
    assert len(found) == len(faults)
    assert all(sentence.startswith(start) for sentence, start in zip(found, faults, strict=True))


def test_choice_takes_the_first_that_works(monkeypatch):
    monkeypatch.setattr(doctor.renderer, "CHOSEN", ("egl", "no OSMesa"))
    monkeypatch.setattr(doctor, "reader_order", lambda: ("decord", "pyav"))
    assert doctor.choose(SOUND)["decoders"] == "decord, then pyav"
    used = doctor.choose({"decord": "broken: x", "pyav": "18", "torchcodec": "0.17"})
    assert used == {"decoders": "pyav", "device": "cpu", "renderer": "egl (no OSMesa)"}
    assert doctor.choose({"decord": ""})["decoders"] == "none"


def test_a_decoder_that_cannot_be_loaded_is_broken_not_absent(monkeypatch, tmp_path):
    (tmp_path / "halfcodec.py").write_text("raise OSError('libx.so: cannot open\\nmore')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor, "version", lambda name: "1.2" if name in ("halfcodec", "json") else "")
    assert doctor.importable("halfcodec") == "broken: libx.so: cannot open"
    assert doctor.importable("json") == "1.2"
    assert doctor.importable("no_such_codec") == ""
    assert "halfcodec" not in sys.modules


@pytest.mark.parametrize(("faults", "code"), [((), 0), (("no video decoder works; …",), 1)])
def test_json_is_one_line_with_the_verdict(monkeypatch, capsys, faults, code):
    monkeypatch.setattr(doctor, "examine", lambda: replace(HEALTHY, faults=faults))
    assert doctor.main(json=True) == code
    (line,) = capsys.readouterr().out.splitlines()
    row = json.loads(line)
    assert (row["ok"], row["bars"], row["figures"]["decoders"]) == (code == 0, {"faults": 0}, SOUND)
    assert row["figures"]["faults"] == list(faults)


def test_the_page_shows_faults_last(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda: replace(HEALTHY, faults=("a is gone; fetch it",)))
    assert doctor.main() == 1
    assert capsys.readouterr().out.endswith("\nfault: a is gone; fetch it\n")
    assert doctor.page(HEALTHY).endswith("\n\nno faults found")


def test_this_machine(monkeypatch):
    """The trials themselves: this machine passes its own tests, so it decodes and computes."""
    monkeypatch.setattr(doctor, "RENDERERS", ("nonsense",))
    found = doctor.examine()
    assert found.packages["torch"] and found.decoders["pyav"] and not found.decoders["pyav"].startswith("broken")
    assert found.cores >= 1 and found.memory_gb > 0.5
    assert " threads, " in found.devices["cpu"]
    if found.renderers:
        assert "nonsense" in found.renderers["nonsense"]  # MuJoCo's own words about a back end that does not exist
        assert any(fault.startswith("MuJoCo would draw by") for fault in found.faults)


def test_it_looks_for_the_models_that_are_shipped():
    assert doctor.MODELS == SHIPPED and doctor.missing_models() == []
