"""Configurations: merging, overrides, and the sentence for every fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from cosmos_reason import config
from cosmos_reason.errors import UserError


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rollout(_Strict):
    group_size: int = 8
    max_tokens: int = 64


class Stage(_Strict):
    name: str
    keep: float = 1.0


class Recipe(_Strict):
    steps: int
    lr: float = 1e-3
    out: Path | None = None
    rollout: Rollout = Rollout()
    extra_rollout: Rollout | None = None
    stages: tuple[Stage, ...] = ()
    tags: dict[str, str] = {}


def write(folder: Path, text: str, name: str = "recipe.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_values_are_typed_and_frozen(tmp_path):
    recipe = config.load(write(tmp_path, "steps: 3\nlr: 1e-4\nout: runs/a\nrollout: {group_size: 4}\n"), Recipe)
    # YAML 1.1 reads 1e-4 as text; the type of the field makes it the number that was meant
    assert recipe == Recipe(steps=3, lr=0.0001, out=Path("runs/a"), rollout=Rollout(group_size=4, max_tokens=64))
    with pytest.raises(ValidationError):
        recipe.steps = 4


def test_empty_file_gives_the_defaults(tmp_path):
    assert config.load(write(tmp_path, "# nothing\n"), Rollout) == Rollout()


def test_base_is_merged_key_by_key_and_lists_are_replaced(tmp_path):
    (tmp_path / "shared").mkdir()
    write(
        tmp_path,
        "steps: 1\nlr: 0.5\nstages: [{name: a}, {name: b}]\nrollout: {group_size: 2, max_tokens: 9}\n",
        "root.yaml",
    )
    write(tmp_path / "shared", "base: ../root.yaml\nsteps: 2\n", "middle.yaml")
    path = write(tmp_path, "base: shared/middle.yaml\nstages: [{name: c}]\nrollout: {max_tokens: 7}\n")
    recipe = config.load(path, Recipe, ["rollout.group_size=3"])
    assert (recipe.steps, recipe.lr) == (2, 0.5)
    assert recipe.stages == (Stage(name="c"),)
    assert recipe.rollout == Rollout(group_size=3, max_tokens=7)


@pytest.mark.parametrize(
    ("override", "field", "value"),
    [
        ("steps=12", "steps", 12),
        ("lr=3e-4", "lr", 0.0003),
        ("out=runs/x=y", "out", Path("runs/x=y")),
        ("out=null", "out", None),
        ("stages=[{name: z, keep: 0.5}]", "stages", (Stage(name="z", keep=0.5),)),
        ("tags.a.b=c", "tags", None),
    ],
)
def test_overrides_are_read_as_yaml(tmp_path, override, field, value):
    path = write(tmp_path, "steps: 1\n")
    if value is None and field == "tags":  # a text cannot hold a key
        with pytest.raises(UserError, match=r"^tags\.a\.b=c: `tags\.a` should be a valid string"):
            config.load(path, Recipe, [override])
    else:
        assert getattr(config.load(path, Recipe, [override]), field) == value


def test_later_override_wins(tmp_path):
    assert config.load(write(tmp_path, "steps: 1\n"), Recipe, ["steps=2", "steps=5"]).steps == 5


@pytest.mark.parametrize(
    ("text", "overrides", "sentence"),
    [
        ("steps: 1\nstpes: 2\n", [], "{path}:2: unknown key `stpes`; did you mean `steps`?"),
        (
            "steps: 1\nrollout:\n  groop_size: 2\n",
            [],
            "{path}:3: unknown key `rollout.groop_size`; did you mean `group_size`?",
        ),
        (
            "steps: 1\nextra_rollout:\n  max_token: 2\n",
            [],
            "{path}:3: unknown key `extra_rollout.max_token`; did you mean `max_tokens`?",
        ),
        (
            "steps: 1\nstages:\n- name: a\n- nmae: b\n  name: c\n",
            [],
            "{path}:4: unknown key `stages.1.nmae`; did you mean `name`?",
        ),
        ("steps: 1\nrollout: {q: 2}\n", [], "{path}:2: unknown key `rollout.q`; known keys are group_size, max_tokens"),
        (
            "steps: 1\n",
            ["rollout.groop_size=2"],
            "rollout.groop_size=2: unknown key `rollout.groop_size`; did you mean `group_size`?",
        ),
        (
            "steps: many\n",
            [],
            "{path}:1: `steps` should be a valid integer, unable to parse string as an integer, got 'many'",
        ),
        (
            "steps: 1\n",
            ["steps=1.5"],
            "steps=1.5: `steps` should be a valid integer, got a number with a fractional part, got 1.5",
        ),
        ("lr: 1\n", [], "{path}: `steps` is missing; add it or give steps=…"),
        ("steps: 1\nstages:\n- keep: 1\n", [], "{path}:3: `stages.0.name` is missing; add it or give stages.0.name=…"),
        ("steps: 1\nlr: 2\nsteps: 3\n", [], "{path}:3: `steps` is already set at {path}:1; keep one of them"),
        ("steps: [1\n", [], "{path}:2: not valid YAML"),
        ("- 1\n", [], "{path}: wanted `key: value` lines, got a list"),
        ("base: 3\n", [], "{path}:1: `base` must be the name of a YAML file, got 3"),
        ("base: recipe.yaml\n", [], "{path}: its `base:` leads back to itself"),
        (
            "base: gone.yaml\n",
            [],
            "{folder}/gone.yaml: cannot be read as a configuration (No such file or directory); give a YAML file",
        ),
        ("steps: 1\n", ["steps"], "'steps' is not an override; write it as key=value"),
        ("steps: 1\n", ["=2"], "'=2' is not an override"),
        ("steps: 1\n", ["lr=[1"], "lr=[1: the value is not valid YAML; quote it"),
    ],
)
def test_every_fault_is_one_sentence_with_its_place(tmp_path, text, overrides, sentence):
    path = write(tmp_path, text)
    with pytest.raises(UserError) as caught:
        config.load(path, Recipe, overrides)
    assert str(caught.value).startswith(sentence.format(path=path, folder=tmp_path)), str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_faults_are_named_together(tmp_path):
    with pytest.raises(UserError, match=r"^lr=x: `lr` should be a valid number.*; .*recipe\.yaml:1: unknown key `stp`"):
        config.load(write(tmp_path, "stp: 1\nsteps: 1\n"), Recipe, ["lr=x"])


def test_a_fault_of_the_base_names_the_base(tmp_path):
    write(tmp_path, "steps: 1\nlrr: 1\n", "base.yaml")
    with pytest.raises(UserError, match=r"base\.yaml:2: unknown key `lrr`"):
        config.load(write(tmp_path, "base: base.yaml\nlr: 2\n"), Recipe)


def test_a_folder_or_binary_is_no_configuration(tmp_path):
    with pytest.raises(UserError, match="Is a directory"):
        config.load(tmp_path, Recipe)
    binary = tmp_path / "clip.mp4"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(UserError, match="not UTF-8 text"):
        config.load(binary, Recipe)


def test_a_lax_model_is_our_own_bug(tmp_path):
    class Lax(BaseModel):
        steps: int = 1

    with pytest.raises(AssertionError, match="must forbid unknown keys"):
        config.load(write(tmp_path, "steps: 1\n"), Lax)


def test_data_folder_finds_the_checkout_and_the_installation(tmp_path, monkeypatch):
    assert (config.data_folder("ontology") / "common_sense.yaml").is_file()
    package = tmp_path / "site-packages" / "cosmos_reason"
    shipped = package / "_data" / "ontology"
    shipped.mkdir(parents=True)
    monkeypatch.setattr(config, "__file__", str(package / "config.py"))
    assert config.data_folder("ontology") == shipped
    with pytest.raises(FileNotFoundError, match="the installation is incomplete"):
        config.data_folder("benchmarks")
