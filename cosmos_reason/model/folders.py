"""Folders of safetensors files: everything is checked from headers before a tensor is read, and written whole or not.

reading: config.json or index -> files beside it -> headers -> `Stored`; writing: temporary sibling -> files -> rename.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cosmos_reason.errors import DataError, UserError

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Stored(NamedTuple):
    """What a header says of one tensor. Example: ``Stored(Path("model.safetensors"), "BF16", (2048, 256))``."""

    path: Path
    dtype: str
    shape: tuple[int, ...]


def existing(folder: str | Path) -> Path:
    """A folder with a config.json."""
    if not Path(folder).is_dir():
        raise UserError(f"no folder {str(folder)!r}: give one with {CONFIG} and safetensors files")
    if not (Path(folder) / CONFIG).is_file():
        raise UserError(f"{folder}: no {CONFIG}; give the folder of a model")
    return Path(folder)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; infinities are plain or written as transformers does, ``{"__float__": "Infinity"}``."""
    try:
        data = json.loads(
            path.read_text(encoding="utf-8"),
            object_hook=lambda d: float(d["__float__"]) if d.keys() == {"__float__"} else d,
        )
    except (OSError, ValueError, TypeError, RecursionError) as fault:
        raise DataError(path, f"cannot be read as JSON ({fault}); fetch it again") from None
    if not isinstance(data, dict):
        raise DataError(path, f"wanted a JSON object, got a {type(data).__name__}; fetch it again")
    return data


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """Every tensor of a folder by name, from the headers alone."""
    if not (folder / INDEX).is_file():
        if not (folder / SINGLE).is_file():
            pickled = "only pickled weights, which may run code; " if any(folder.glob("*.bin")) else ""
            raise UserError(f"{folder}: {pickled}no {SINGLE} and no {INDEX}; give a folder of safetensors files")
        return _headers(folder / SINGLE)
    if (folder / SINGLE).is_file():
        raise UserError(f"{folder}: both {SINGLE} and {INDEX}, which may differ; remove one of them")
    found: dict[str, Stored] = {}
    for file, names in _shards(folder / INDEX).items():
        if not (folder / file).is_file():
            raise DataError(folder / file, f"missing, though {INDEX} names it; fetch it again")
        headers = _headers(folder / file)
        if headers.keys() != names:
            raise DataError(folder / file, f"{INDEX} and this file differ in {few(headers.keys() ^ names)}")
        found.update(headers)
    return found


def _shards(index: Path) -> dict[str, set[str]]:
    """File name -> tensors that the index expects in it."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise DataError(index, "no weight_map from tensors to files; fetch it again")
    shards: dict[str, set[str]] = {}
    for name, file in weight_map.items():
        # Only plain names: an index from elsewhere must not make us open files outside its folder, nor pickles.
        if not isinstance(file, str) or file != Path(file).name or "\\" in file or not file.endswith(".safetensors"):
            raise DataError(index, f"{name} is placed in {file!r}; only safetensors files beside the index are read")
        shards.setdefault(file, set()).add(name)
    return shards


def _headers(path: Path) -> dict[str, Stored]:
    """Names, types and shapes; the library compares the file's length with them. No tensor is read."""
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            return {name: Stored(path, part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
    except (SafetensorError, OSError) as fault:
        raise DataError(path, f"not a whole safetensors file ({fault}); fetch it again") from None


def read_tensors(stored: dict[str, Stored]) -> Iterator[tuple[str, Tensor]]:
    """Name and value, file by file. The value is the file's mapped pages: copy it, for they change with the file."""
    for path in dict.fromkeys(tensor.path for tensor in stored.values()):
        with safe_open(path, framework="pt") as file:
            for name, tensor in stored.items():
                if tensor.path == path:
                    yield name, file.get_tensor(name)


def few(names: Iterable[str]) -> str:
    """``a, b, c and 4 more``."""
    ordered = sorted(names)
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")


def refuse_existing(folder: str | Path) -> Path:
    """Where a new folder will stand, links followed; anything there but an empty folder is the caller's mistake."""
    target = Path(os.path.realpath(folder))
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(f"{folder}: exists and is not an empty folder; give another one or remove it")
    return target


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A temporary sibling that takes the name of `folder` once all of it is written, and is removed otherwise."""
    target = refuse_existing(folder)
    staging = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        staging.mkdir(parents=True)
        yield staging
        for path in staging.iterdir():
            _to_disk(path)
        staging.rename(target)
        _to_disk(target.parent)
    except (OSError, SafetensorError) as fault:
        raise UserError(f"{folder}: cannot be written ({fault}); make room or give another folder") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _to_disk(path: Path) -> None:
    """Past the page cache, so that a folder with its final name is whole even after a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Infinities as transformers writes them, so that the file is JSON to everyone."""
    plain = json.loads(json.dumps(data), parse_constant=lambda name: {"__float__": name})
    path.write_text(json.dumps(plain, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def write_tensors(folder: Path, tensors: dict[str, Tensor], max_bytes: int) -> None:
    """One file, or shards of at most `max_bytes` (or one tensor) with their index."""
    shards: list[list[str]] = [[]]
    room = max_bytes
    for name, tensor in tensors.items():
        if shards[-1] and tensor.nbytes > room:
            shards.append([])
            room = max_bytes
        shards[-1].append(name)
        room -= tensor.nbytes
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = SINGLE if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(_unshared({name: tensors[name] for name in names}), folder / file, {"format": "pt"})
        weight_map |= dict.fromkeys(names, file)
    if len(shards) > 1:
        total = sum(tensor.nbytes for tensor in tensors.values())
        write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The format knows no views: what shares memory with another tensor, or is no block of it, is copied."""
    seen: set[int] = set()
    unshared = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        alone = tensor.is_contiguous() and storage not in seen
        seen.add(storage)
        unshared[name] = tensor if alone else tensor.clone(memory_format=torch.contiguous_format)
    return unshared


def copy_files(names: Iterable[str], source: Path, target: Path) -> None:
    """Those of the files that there are."""
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
