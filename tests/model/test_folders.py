"""Damaged, foreign and half-written folders: one sentence that names the file, and no tensor is read before it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.model import folders
from cosmos_reason.model.causal_lm import HybridForCausalLM
from cosmos_reason.model.convert import load, save
from cosmos_reason.model.folders import CONFIG, INDEX, SINGLE
from tests.model import twin


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A folder of one file and one of several: ``single`` and ``sharded``."""
    torch.manual_seed(0)
    model = HybridForCausalLM(twin.text_config())
    root = tmp_path_factory.mktemp("whole")
    save(model, root / "single")
    save(model, root / "sharded", max_shard_bytes=1000)
    return root


def edit(path: Path, change: Callable[[dict], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def resave(path: Path, change: Callable[[dict], object]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


def first(folder: Path) -> Path:
    return min(folder.glob("model-*.safetensors"))


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def cut(path: Path, keep: float) -> None:
    os.truncate(path, int(path.stat().st_size * keep))


def pickled(folder: Path) -> None:
    (folder / SINGLE).unlink()
    torch.save({}, folder / "pytorch_model.bin")


def swap_two(index: dict) -> None:
    """Two tensors of different files change places in the index."""
    names = list(index["weight_map"])
    a, b = names[0], names[-1]
    index["weight_map"][a], index["weight_map"][b] = index["weight_map"][b], index["weight_map"][a]


def place(name: object) -> Callable[[Path], None]:
    """An index that places one tensor in a file of this name."""
    return lambda folder: edit(folder / INDEX, lambda d: d["weight_map"].update({"lm_head.weight": name}))


HEAD = "lm_head.weight"
UP = "backbone.layers.1.mixer.up_proj.weight"
DAMAGE: list[tuple[str, Callable[[Path], object], type[Exception], str]] = [
    # the folder and its files
    ("single", lambda d: (d / CONFIG).unlink(), UserError, "no config.json"),
    ("single", lambda d: (d / SINGLE).unlink(), UserError, "no model.safetensors and no model.safetensors.index.json"),
    ("single", pickled, UserError, "only pickled weights, which may run code"),
    ("sharded", lambda d: first(d).rename(d / SINGLE), UserError, "both model.safetensors and model.safetensors.index"),
    ("sharded", lambda d: first(d).unlink(), DataError, "missing, though model.safetensors.index.json names it"),
    # config.json
    ("single", lambda d: (d / CONFIG).write_text("{"), DataError, "cannot be read as JSON"),
    ("single", lambda d: (d / CONFIG).write_bytes(b"\xff\xfe"), DataError, "cannot be read as JSON"),
    ("single", lambda d: (d / CONFIG).write_text("[" * 100_000), DataError, "cannot be read as JSON"),
    ("single", lambda d: (d / CONFIG).write_text("[]"), DataError, "wanted a JSON object, got a list"),
    ("single", lambda d: (d / CONFIG).write_text("{}"), UserError, "wanted a model of type nemotron_h, got None"),
    ("single", lambda d: edit(d / CONFIG, lambda c: c.update(use_bias=True)), UserError, "config.json: use_bias: want"),
    ("single", lambda d: edit(d / CONFIG, lambda c: c.update(n_groups=3)), UserError, "config.json: mamba_num_heads 4"),
    # headers
    ("single", lambda d: cut(d / SINGLE, 0.9), DataError, "not a whole safetensors file"),
    ("single", lambda d: cut(d / SINGLE, 0.01), DataError, "not a whole safetensors file"),
    ("single", lambda d: cut(d / SINGLE, 0), DataError, "not a whole safetensors file"),
    ("single", lambda d: append(d / SINGLE), DataError, "not a whole safetensors file"),
    ("single", lambda d: torch.save({"a": 1}, d / SINGLE), DataError, "not a whole safetensors file"),
    ("sharded", lambda d: cut(first(d), 0.9), DataError, "not a whole safetensors file"),
    ("single", lambda d: resave(d / SINGLE, lambda t: t.pop(UP)), DataError, f"{UP} missing for the layers"),
    ("single", lambda d: resave(d / SINGLE, dict.clear), DataError, "and 29 more missing for the layers"),
    (
        "single",
        lambda d: resave(d / SINGLE, lambda t: t.update(x=torch.ones(1))),
        DataError,
        "x too many for the layer",
    ),
    (
        "single",
        lambda d: resave(d / SINGLE, lambda t: t.update({UP: t[UP].T.contiguous()})),
        DataError,
        r"has shape \(8, 12",
    ),
    ("single", lambda d: resave(d / SINGLE, lambda t: t.update({UP: t[UP].char()})), DataError, "stored as I8, wanted"),
    (
        "single",
        lambda d: resave(d / SINGLE, lambda t: t.update({UP: t[UP].half()})),
        UserError,
        "stored as F16 and F32",
    ),
    # the index
    ("sharded", lambda d: (d / INDEX).write_text("{}"), DataError, "no weight_map"),
    ("sharded", lambda d: (d / INDEX).write_text('{"weight_map": []}'), DataError, "no weight_map"),
    ("sharded", lambda d: edit(d / INDEX, swap_two), DataError, "and this file differ in backbone"),
    ("sharded", lambda d: edit(d / INDEX, lambda i: i["weight_map"].pop(UP)), DataError, f"this file differ in {UP}"),
    ("sharded", place("pytorch_model.bin"), DataError, "placed in 'pytorch_model.bin'; only safetensors files beside"),
    ("sharded", place("../other/model.safetensors"), DataError, "only safetensors files beside the index"),
    ("sharded", place("..\\model.safetensors"), DataError, "only safetensors files beside the index"),
    ("sharded", place("/etc/model.safetensors"), DataError, "only safetensors files beside the index"),
    ("sharded", place(3), DataError, "placed in 3; only safetensors files"),
]


@pytest.mark.parametrize(("kind", "damage", "error", "sentence"), DAMAGE, ids=range(len(DAMAGE)))
def test_damage_is_told_before_a_tensor_is_read(whole, tmp_path, monkeypatch, kind, damage, error, sentence):
    folder = tmp_path / "copy"
    shutil.copytree(whole / kind, folder)
    assert load(folder).config.vocab_size == 40
    damage(folder)
    monkeypatch.setattr(folders, "read_tensors", lambda stored: pytest.fail("a tensor was read"))
    with pytest.raises(error, match=sentence) as caught:
        load(folder)
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)


def test_no_folder_is_the_callers_mistake(tmp_path):
    with pytest.raises(UserError, match="no folder"):
        load(tmp_path / "nowhere")


def test_links_to_files_elsewhere_are_followed(whole, tmp_path):
    """As in a download cache, where a snapshot is links to its files."""
    folder = tmp_path / "snapshot"
    folder.mkdir()
    for path in (whole / "sharded").iterdir():
        (folder / path.name).symlink_to(path)
    assert load(folder).state_dict().keys() == load(whole / "sharded").state_dict().keys()


@pytest.mark.parametrize("limit", [1, 1000, 5000, 10**9])
def test_shards_are_as_large_as_asked(tmp_path, limit):
    model = HybridForCausalLM(twin.text_config())
    save(model, tmp_path / "out", max_shard_bytes=limit)
    files = sorted((tmp_path / "out").glob("*.safetensors"))
    names: list[str] = []
    for path in files:
        with safe_open(path, "pt") as file:
            assert file.metadata() == {"format": "pt"}
            here = {name: file.get_tensor(name).nbytes for name in file.keys()}  # noqa: SIM118
        assert sum(here.values()) <= limit or len(here) == 1
        names += here
    assert sorted(names) == sorted(model.state_dict())
    if len(files) == 1:
        assert limit == 10**9 and files[0].name == SINGLE and not (tmp_path / "out" / INDEX).exists()
    else:
        index = json.loads((tmp_path / "out" / INDEX).read_text())
        assert index["metadata"]["total_size"] == sum(t.nbytes for t in model.state_dict().values())
        assert sorted(index["weight_map"]) == sorted(names)


def test_nothing_is_left_of_a_folder_that_failed(tmp_path, monkeypatch):
    def disk_full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "write_tensors", disk_full)
    with pytest.raises(UserError, match=r"out: cannot be written .*No space left"):
        save(HybridForCausalLM(twin.text_config()), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(folders, "write_tensors", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save(HybridForCausalLM(twin.text_config()), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_has_its_name_only_when_it_is_whole(tmp_path, monkeypatch):
    write = folders.write_tensors
    seen = []

    def watched(*arguments) -> None:
        write(*arguments)
        seen.append((tmp_path / "deep" / "out").exists())

    monkeypatch.setattr(folders, "write_tensors", watched)
    save(HybridForCausalLM(twin.text_config()), tmp_path / "deep" / "out")
    assert seen == [False]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


def test_nothing_is_overwritten(whole, tmp_path, monkeypatch):
    model = HybridForCausalLM(twin.text_config())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("full", "file"):
        with pytest.raises(UserError, match=f"{name}: exists and is not an empty folder"):
            save(model, tmp_path / name)
    assert (tmp_path / "full" / "notes.txt").read_text() == (tmp_path / "file").read_text() == "mine"

    # Someone else was faster: the folder was not there when we began.
    write = folders.write_tensors
    monkeypatch.setattr(
        folders, "write_tensors", lambda *a: (write(*a), shutil.copytree(whole / "single", tmp_path / "late"))
    )
    with pytest.raises(UserError, match="late: cannot be written"):
        save(model, tmp_path / "late")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full", "late"]


def test_an_empty_folder_is_taken_also_through_a_link(tmp_path):
    model = HybridForCausalLM(twin.text_config())
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    save(model, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "empty" / CONFIG).is_file()
    assert load(tmp_path / "empty").config.vocab_size == 40


def test_written_json_is_json_to_everyone(tmp_path):
    save(HybridForCausalLM(twin.text_config()), tmp_path / "out")
    text = (tmp_path / "out" / CONFIG).read_text()

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    json.loads(text, parse_constant=refuse)
    assert folders.read_json(tmp_path / "out" / CONFIG)["time_step_limit"] == [0.0, float("inf")]
