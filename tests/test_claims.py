"""The claims runner: verdicts, exit codes and who gets which line, on small scripts written here."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from cosmos_reason import claims, config
from cosmos_reason.errors import UserError

GOOD = '{"ok": true, "figures": {"x": 1}, "bars": {"x": 1}}'
BAD = '{"ok": false, "figures": {"x": 0}, "bars": {"x": 1}}'


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """An empty benchmarks/claims."""
    monkeypatch.setattr(config, "data_folder", lambda name: tmp_path / name)
    folder = tmp_path / "benchmarks" / "claims"
    folder.mkdir(parents=True)
    return folder


def script(home: Path, name: str, body: str) -> None:
    (home / f"{name}.py").write_text(f'"""About {name}."""\nimport sys\n{body}\n')


def test_a_claim_that_holds(home, capfd):
    script(home, "fine", f"print('measuring')\nprint({GOOD!r})")
    assert claims.main("fine") == 0
    assert capfd.readouterr().out.splitlines() == ["measuring", GOOD]


def test_hyphens_name_a_script_too(home):
    script(home, "two_words", f"print({GOOD!r})")
    assert claims.main("two-words") == claims.main("two_words") == 0


def test_json_leaves_one_line_on_stdout(home, capfd):
    script(home, "fine", f"print('measuring')\nprint({GOOD!r})")
    assert claims.main("fine", json=True) == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out) == {"ok": True, "figures": {"x": 1}, "bars": {"x": 1}}
    assert printed.err == "measuring\n"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (f"print({BAD!r}); sys.exit(1)", 1),
        (f"print({BAD!r})", 1),  # ok is false though it exits with 0
        (f"print({GOOD!r}); sys.exit(1)", 1),  # it says ok but fails: not ok
        ("print('no figures'); sys.exit(2)", 2),
        ("print('done')", 1),
        ("print('[1]')", 1),
        ("print('{\"ok\": true}')", 1),
        ("raise RuntimeError('boom')", 1),
        ("", 1),
    ],
)
def test_exit_codes(home, body, code):
    script(home, "it", body)
    assert claims.main("it") == code


def test_a_script_without_a_verdict_is_said_to_be_so(home, capfd):
    script(home, "it", "print('half way'); sys.exit(3)")
    assert claims.main("it") == 1
    assert "half way" in (said := capfd.readouterr().err)
    assert said.rstrip().endswith("it.py: ended with code 3 without its JSON line of ok, figures and bars")


def test_quick_is_passed_on(home, capfd):
    script(home, "it", "import json\nprint(json.dumps({'ok': True, 'figures': sys.argv[1:], 'bars': {}}))")
    assert claims.main("it", quick=True) == 0
    assert json.loads(capfd.readouterr().out)["figures"] == ["--quick"]


def test_names_are_listed_and_suggested(home, capsys):
    script(home, "nano", "")
    script(home, "mamba", "")
    script(home, "_shared", "")
    assert claims.main(None) == 0
    assert capsys.readouterr().out.split() == ["mamba", "About", "mamba.", "nano", "About", "nano."]
    with pytest.raises(UserError, match=r"no script 'nanno' in benchmarks/claims; did you mean nano\?"):
        claims.main("nanno")
    with pytest.raises(UserError, match="there is mamba, nano"):
        claims.main("zzz")


def test_an_empty_folder_says_so(home, capsys):
    assert claims.main(None, folder="speed") == 0
    assert capsys.readouterr().out == "nothing to measure for speed yet\n"
    with pytest.raises(UserError, match="benchmarks/speed; there is none yet"):
        claims.main("x", folder="speed")


def test_shipped_scripts_begin_by_saying_what_they_measure():
    for path in (config.data_folder("benchmarks")).glob("*/*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path
