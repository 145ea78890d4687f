"""Nemotron-H folders of transformers (`nemotron_h`) to our text model and back, without loss.

config.json -> HybridConfig -> model without memory -> every file checked by its header -> tensors, one by one.
The names of the tensors (`backbone.…`, `lm_head.weight`) and their shapes are the same on both sides, so that our own
folders are read the same way. Nothing is taken into memory before all of a folder is known to fit.

    python -m cosmos_reason.model.convert to-nemotron nano out/nano
    python -m cosmos_reason.model.convert from-nemotron out/nano out/again
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor, nn
from transformers import __version__ as transformers_version
from transformers.utils import logging as transformers_logging

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.model import folders
from cosmos_reason.model.causal_lm import HybridForCausalLM
from cosmos_reason.model.config import HybridConfig, HybridVLMConfig
from cosmos_reason.model.folders import CONFIG, FLOATS, Stored
from cosmos_reason.model.nemotron import HARMLESS_STEP, MODEL_TYPE, OUR_STEP, config_from_nemotron, config_to_nemotron

__all__ = [
    "config_from_nemotron",
    "config_to_nemotron",
    "load",
    "load_ours",
    "save",
    "save_ours",
    "source_folder",
]

SHARD_BYTES = 5_000_000_000
HEAD, TABLE = "lm_head.weight", "backbone.embeddings.weight"
COMPANIONS = (  # the tokenizer and how to generate
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)


def load(folder: str | Path, dtype: torch.dtype | None = None) -> HybridForCausalLM:
    """The model of a `nemotron_h` folder, on the CPU, its head tied where config.json says so.

    dtype: None keeps every tensor as it was stored; otherwise weights are cast, but A_log, D and dt_bias never below
    fp32. The peak is one model and the largest file, whose pages are mapped while it is read.
    """
    settings = folders.read_json(folders.existing(folder) / CONFIG)
    if settings.get("model_type") != MODEL_TYPE:
        raise UserError(f"{folder}: wanted a model of type {MODEL_TYPE}, got {settings.get('model_type')!r}")
    with _naming(folder):
        config = config_from_nemotron(settings)
    return _model(Path(folder), config, dtype)


def load_ours(folder: str | Path) -> HybridForCausalLM:
    """The language part of a folder that `save_pretrained` wrote, every tensor as it was stored."""
    kinds = {kind.model_type: kind for kind in (HybridConfig, HybridVLMConfig)}
    found = folders.read_json(folders.existing(folder) / CONFIG).get("model_type")
    if found not in kinds:
        raise UserError(f"{folder}: wanted a model of type {' or '.join(kinds)}, got {found!r}")
    try:
        with _naming(folder):
            text = kinds[found].from_pretrained(folder).get_text_config()
    except (TypeError, ValueError, KeyError) as fault:
        raise DataError(Path(folder) / CONFIG, f"not a configuration of ours ({fault})") from None
    assert isinstance(text, HybridConfig), f"{type(text).__name__} is no text configuration"
    # A video model is its encoder, its projector and a text model under the text model's own names.
    return _model(Path(folder), text, None, ("vision.", "projector."))


def source_folder(name: str) -> Path:
    """The folder of a shipped model, e.g. ``nano``, or of a path."""
    assets = Path(str(files("cosmos_reason") / "assets"))
    shipped = {folder.name: folder for folder in sorted(assets.iterdir()) if (folder / CONFIG).is_file()}
    folder = shipped.get(name, Path(name))
    if not folder.is_dir():
        raise UserError(f"no model {name!r}: wanted {', '.join(shipped)} or a folder that training wrote")
    return folder


@contextmanager
def _naming(folder: str | Path) -> Iterator[None]:
    """A fault of a configuration begins with its file."""
    try:
        yield
    except UserError as fault:
        raise UserError(f"{Path(folder) / CONFIG}: {fault}") from None


def _model(
    folder: Path, config: HybridConfig, dtype: torch.dtype | None, skipped: tuple[str, ...] = ()
) -> HybridForCausalLM:
    """Check every header against a model without memory, then fill it tensor by tensor."""
    if dtype is not None and dtype not in FLOATS.values():
        raise UserError(f"dtype: wanted one of {', '.join(map(str, FLOATS.values()))}, got {dtype}")
    with torch.device("meta"):
        model = HybridForCausalLM(config)
    stored = {name: t for name, t in folders.stored_tensors(folder).items() if not name.startswith(skipped or "\0")}
    _check(folder, model, stored, dtype)
    head = _fill(model, stored, dtype)
    if config.tie_word_embeddings:
        if head is not None and not torch.equal(head, model.backbone.embeddings.weight):
            raise DataError(folder, f"tie_word_embeddings is true, but {HEAD} differs from {TABLE}; set it to false")
        model.tie_weights()
    left = [name for name, value in (*model.named_parameters(), *model.named_buffers()) if value.is_meta]
    assert not left, f"{folders.few(left)} neither stored nor computed: buffers need their values here"
    model.config.dtype = model.backbone.embeddings.weight.dtype
    return model.eval()


def _check(folder: Path, model: HybridForCausalLM, stored: dict[str, Stored], dtype: torch.dtype | None) -> None:
    """Names, shapes and types of what is stored against what the model wants."""
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    tied = {HEAD} if model.text_config.tie_word_embeddings else set()
    if missing := wanted.keys() - stored.keys() - tied:
        raise DataError(folder, f"{folders.few(missing)} missing for the layers in {CONFIG}")
    if extra := stored.keys() - wanted.keys():
        raise DataError(folder, f"{folders.few(extra)} too many for the layers in {CONFIG}")
    for name, (path, kind, shape) in stored.items():
        if shape != wanted[name]:
            raise DataError(path, f"{name} has shape {shape}, {CONFIG} asks for {wanted[name]}")
        if kind not in FLOATS:
            raise DataError(path, f"{name} is stored as {kind}, wanted one of {', '.join(FLOATS)}; not quantised ones")
    linear = {f"{name}.weight" for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    kinds = {tensor.dtype for name, tensor in stored.items() if name in linear | {TABLE}}
    if dtype is None and len(kinds) > 1:
        raise UserError(f"{folder}: matrices are stored as {' and '.join(sorted(kinds))}; give one dtype for all")


def _fill(model: HybridForCausalLM, stored: dict[str, Stored], dtype: torch.dtype | None) -> Tensor | None:
    """Replace the model's parameters; returns the head that was stored beside the table it is tied to."""
    tied_head = None
    for name, mapped in folders.read_tensors(stored):
        value = mapped.to(_kept_dtype(name, mapped.dtype, dtype), copy=True)
        if name == HEAD and model.text_config.tie_word_embeddings:
            tied_head = value
        else:
            _assign(model, name, value)
    return tied_head


def _kept_dtype(name: str, stored: torch.dtype, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is None:
        return stored
    delicate = name.rpartition(".")[2] in HybridForCausalLM._keep_in_fp32_modules_strict
    return torch.promote_types(dtype, torch.float32) if delicate else dtype


def _assign(model: nn.Module, name: str, value: Tensor) -> None:
    module_name, _, leaf = name.rpartition(".")
    module = model.get_submodule(module_name)
    parameter = nn.Parameter(value)
    parameter.__dict__.update(getattr(module, leaf).__dict__)  # marks such as "no weight decay"
    parameter._is_hf_initialized = True  # type: ignore[attr-defined]  # for transformers: not to be drawn again
    setattr(module, leaf, parameter)


def save(
    model: HybridForCausalLM,
    folder: str | Path,
    max_shard_bytes: int = SHARD_BYTES,
    companions: str | Path | None = None,
) -> Path:
    """A `nemotron_h` folder of a model, of a video model its language part, every tensor bit for bit as it is.

    It appears as a whole or not at all. `companions` is a folder whose tokenizer and generation settings come along.
    The head is written even when it is tied: transformers would otherwise draw a random one. For equal logits in
    transformers load with ``dtype=torch.float32``, since it rounds A_log, D and dt_bias to the type of the weights.
    """
    if max_shard_bytes < 1:
        raise UserError(f"max_shard_bytes: wanted 1 or more, got {max_shard_bytes}")
    tensors = {name: value for name, value in model.state_dict().items() if name.startswith(("backbone.", "lm_head."))}
    if any(value.is_meta for value in tensors.values()):
        raise UserError("the model has no weights: it is on the meta device; load or build one in memory")
    config = config_to_nemotron(model.text_config)
    config |= {
        "time_step_min": HARMLESS_STEP,
        OUR_STEP: config["time_step_min"],
        "dtype": str(tensors[TABLE].dtype).removeprefix("torch."),
        "transformers_version": transformers_version,
    }
    with folders.new_folder(folder) as staging:
        folders.write_json(staging / CONFIG, config)
        model.generation_config.save_pretrained(staging)
        folders.write_tensors(staging, tensors, max_shard_bytes)
        if companions is not None:
            folders.copy_files(COMPANIONS, Path(companions), staging)
    return Path(folder)


def save_ours(model: HybridForCausalLM, folder: str | Path, companions: str | Path | None = None) -> Path:
    """A folder that `HybridForCausalLM.from_pretrained` opens; whole or not at all, as in `save`."""
    with folders.new_folder(folder) as staging:
        model.save_pretrained(staging, max_shard_size=SHARD_BYTES)
        if companions is not None:
            folders.copy_files(COMPANIONS, Path(companions), staging)
    return Path(folder)


app = typer.Typer(
    help="Convert between folders of ours and transformers' nemotron_h folders.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


@app.command()
def to_nemotron(
    source: Annotated[str, typer.Argument(help="A shipped model (nano, nano-base) or a folder that training wrote.")],
    out: Annotated[Path, typer.Argument(help="The new folder; it must not exist or be empty.")],
    max_shard_bytes: Annotated[int, typer.Option(help="Largest file of weights, bytes.")] = SHARD_BYTES,
) -> None:
    """Write the language part of one of our models as a nemotron_h folder, its tokenizer beside it.

    \b
    Examples:
      python -m cosmos_reason.model.convert to-nemotron nano out/nano
      python -m cosmos_reason.model.convert to-nemotron runs/sft/final out/sft --max-shard-bytes 1000000000
    """
    folders.refuse_existing(out)
    folder = source_folder(source)
    model = load_ours(folder)
    _report(model, save(model, out, max_shard_bytes, companions=folder))


@app.command()
def from_nemotron(
    source: Annotated[Path, typer.Argument(help="A nemotron_h folder: config.json and safetensors files.")],
    out: Annotated[Path, typer.Argument(help="The new folder; it must not exist or be empty.")],
    dtype: Annotated[str | None, typer.Option(help="Cast the weights, e.g. bfloat16; as stored if not given.")] = None,
) -> None:
    """Write a nemotron_h folder as a text model of ours, its tokenizer beside it.

    \b
    Examples:
      python -m cosmos_reason.model.convert from-nemotron Nemotron-H-8B-Base-8K out/8b
      python -m cosmos_reason.model.convert from-nemotron out/nano out/nano-text --dtype float32
    """
    folders.refuse_existing(out)
    known = {str(kind).removeprefix("torch."): kind for kind in FLOATS.values()}
    if dtype is not None and dtype not in known:
        raise UserError(f"--dtype: wanted one of {', '.join(known)}, got {dtype}")
    model = load(source, known[dtype] if dtype else None)
    _report(model, save_ours(model, out, companions=source))


def _report(model: HybridForCausalLM, folder: Path) -> None:
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{folder}: {model.config.num_hidden_layers} layers, {count:,} parameters, {model.dtype}")


def main() -> None:
    """A fault of the caller or of a file is one sentence on stderr and exit code 2."""
    transformers_logging.disable_progress_bar()
    try:
        app()
    except (UserError, DataError) as fault:
        print(f"convert: {fault}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
