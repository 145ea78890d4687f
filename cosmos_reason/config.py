"""Configurations: YAML file + `key=value` overrides -> one typed, frozen value. Also finds the shipped YAML folders.

read the file and its `base:` files -> merge -> apply overrides -> validate -> on a fault, one sentence that says where.
A mapping is merged key by key, anything else (lists too) is replaced. Every key remembers where it was written.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from cosmos_reason.errors import UserError

T = TypeVar("T", bound=BaseModel)
KeyPath = tuple[str | int, ...]  # ("rollout", "group_size"); a number is a position in a list

BASE_KEY = "base"


@dataclass(frozen=True)
class _Document:
    """A merged mapping and, for every key path in it, the place that wrote it, e.g. ``train/sft.yaml:4``."""

    data: dict[str, Any]
    origin: dict[KeyPath, str]


def load(path: str | Path, model: type[T], overrides: Sequence[str] = ()) -> T:
    """Read `path` as a `model`, after its `base:` files and before `overrides` such as ``rollout.group_size=4``.

    Raises UserError for a missing file, faulty YAML, an unknown key (the nearest known one is suggested), a missing key
    or a value of the wrong type; the sentence begins with the file and line, or with the override, that is at fault.
    """
    assert model.model_config.get("extra") == "forbid", f"{model.__name__} must forbid unknown keys"
    document = _read(Path(path), ())
    for override in overrides:
        document = _merge(document, _parse_override(override))
    try:
        return model.model_validate(document.data)
    except ValidationError as fault:
        raise UserError(_sentence(fault, model, document, path)) from None


def data_folder(name: str) -> Path:
    """The folder of shipped files called `name` ("ontology", "benchmarks"), in a checkout or an installation."""
    package = Path(__file__).parent
    for folder in (package / "_data" / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"{name}: neither beside {package} nor inside it; the installation is incomplete")


def _read(path: Path, readers: tuple[Path, ...]) -> _Document:
    """One file on top of its base; `readers` are the files whose `base:` led here, to notice a circle."""
    if path.resolve() in readers:
        raise UserError(f"{path}: its `base:` leads back to itself; remove one `base:` of the circle")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise UserError(f"{path}: cannot be read as a configuration ({_reason(fault)}); give a YAML file") from None
    document = _parse(text, str(path))
    base = document.data.pop(BASE_KEY, None)
    if base is None:
        return document
    if not isinstance(base, str):
        raise UserError(f"{document.origin[(BASE_KEY,)]}: `base` must be the name of a YAML file, got {base!r}")
    return _merge(_read(path.parent / base, (*readers, path.resolve())), document)


def _reason(fault: OSError | UnicodeDecodeError) -> str:
    return (fault.strerror or str(fault)) if isinstance(fault, OSError) else "not UTF-8 text"


def _parse(text: str, name: str) -> _Document:
    """YAML text -> mapping with the line of every key. A key written twice is a fault: one would be ignored."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        raise UserError(f"{place}: not valid YAML ({getattr(fault, 'problem', None) or fault})") from None
    if node is None:
        return _Document({}, {})
    if not isinstance(data, dict):
        raise UserError(f"{name}: wanted `key: value` lines, got a {type(data).__name__}")
    origin: dict[KeyPath, str] = {}
    _note_lines(node, (), name, origin)
    return _Document(data, origin)


def _note_lines(node: yaml.Node, at: KeyPath, name: str, origin: dict[KeyPath, str]) -> None:
    """Fill `origin` for `node` and all below it."""
    children: list[tuple[str | int, yaml.Node, int]] = []
    if isinstance(node, yaml.MappingNode):
        children = [(key.value, value, key.start_mark.line + 1) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = [(i, value, value.start_mark.line + 1) for i, value in enumerate(node.value)]
    for key, value, line in children:
        here = (*at, key)
        if here in origin:
            raise UserError(f"{name}:{line}: `{_dotted(here)}` is already set at {origin[here]}; keep one of them")
        origin[here] = f"{name}:{line}"
        _note_lines(value, here, name, origin)


def _parse_override(override: str) -> _Document:
    """``rollout.group_size=4`` -> {"rollout": {"group_size": 4}}; the value is read as YAML."""
    key, equals, value = override.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise UserError(f"{override!r} is not an override; write it as key=value, e.g. steps=100 or rollout.size=4")
    try:
        data: Any = yaml.safe_load(value)
    except yaml.YAMLError:
        raise UserError(f"{override}: the value is not valid YAML; quote it, e.g. '{key}=\"{value}\"'") from None
    origin: dict[KeyPath, str] = {}
    for depth in range(len(names), 0, -1):
        data = {names[depth - 1]: data}
        origin[tuple(names[:depth])] = override
    return _Document(data, origin)


def _merge(below: _Document, above: _Document) -> _Document:
    """`above` wins, key by key."""
    origin = dict(below.origin)

    def merged(low: dict[str, Any], high: dict[str, Any], at: KeyPath) -> dict[str, Any]:
        result = dict(low)
        for key, value in high.items():
            here = (*at, key)
            if isinstance(value, dict) and isinstance(result.get(key), dict):
                result[key] = merged(result[key], value, here)
                continue
            for old in [p for p in origin if p[: len(here)] == here]:
                del origin[old]
            result[key] = value
        return result

    data = merged(below.data, above.data, ())
    return _Document(data, origin | above.origin)


def _sentence(fault: ValidationError, model: type[BaseModel], document: _Document, path: str | Path) -> str:
    """All faults of one configuration, each with its place, in one sentence."""
    parts = []
    for error in fault.errors(include_url=False):
        loc = tuple(error["loc"])
        place, key = _place(loc, document, path), _dotted(loc)
        match error["type"]:
            case "extra_forbidden":
                parts.append(f"{place}: unknown key `{key}`{_suggestion(model, loc)}")
            case "missing":
                parts.append(f"{place}: `{key}` is missing; add it or give {key}=…")
            case _:
                got = error["input"]
                parts.append(f"{place}: `{key}` {_lower(error['msg'])}, got {got!r}")
    return "; ".join(parts)


def _place(loc: KeyPath, document: _Document, path: str | Path) -> str:
    """Where the key or the nearest mapping above it was written; the file itself for a key at the top."""
    for end in range(len(loc), 0, -1):
        if loc[:end] in document.origin:
            return document.origin[loc[:end]]
    return str(path)


def _suggestion(model: type[BaseModel], loc: KeyPath) -> str:
    """``; did you mean `steps`?`` or the list of known keys beside the unknown one."""
    owner = _model_at(model, loc[:-1])
    known = list(owner.model_fields)
    near = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.5)
    return f"; did you mean `{near[0]}`?" if near else f"; known keys are {', '.join(known)}"


def _model_at(model: type[BaseModel], loc: KeyPath) -> type[BaseModel]:
    """The model that owns the keys at `loc`; list positions, dict keys and union tags lead to the same model."""
    for name in loc:
        field = model.model_fields.get(str(name))
        if field is not None:
            model = next(_models_in(field.annotation), model)
    return model


def _models_in(annotation: Any) -> typing.Iterator[type[BaseModel]]:
    """Every model inside an annotation such as ``list[Rollout] | None``."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel):
            yield annotation
        return
    for inner in typing.get_args(annotation):
        yield from _models_in(inner)


def _dotted(loc: KeyPath) -> str:
    return ".".join(str(name) for name in loc)


def _lower(message: str) -> str:
    """Pydantic's ``Input should be a valid integer`` as the middle of our sentence."""
    return message.replace("Input should", "should").replace("Value error, ", "")
