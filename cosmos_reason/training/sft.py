"""Supervised fine-tuning: `cosmos-reason sft train/sft_nano.yaml`.

sets -> frame store -> (frozen encoder: features cached once) -> rows of questions, notes, recall and conclusions ->
loss on what the assistant says -> model.
The loop below is the whole recipe; each step it calls stands in a file of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from accelerate import Accelerator
from rich.progress import track
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from cosmos_reason import config
from cosmos_reason.backends.local import load_model, model_folder, save_model
from cosmos_reason.errors import UserError
from cosmos_reason.model.vlm import HybridVLM
from cosmos_reason.simulate.dataset import balance, training_set
from cosmos_reason.training.conclusions import ConclusionRows
from cosmos_reason.training.frames import FrameStore
from cosmos_reason.training.muon import muon
from cosmos_reason.training.notes import NoteRows
from cosmos_reason.training.recall import RecallRows
from cosmos_reason.training.rows import Batch, RowMaker, Rows, batches
from cosmos_reason.training.run import (
    Recipe,
    RunLog,
    adamw,
    content,
    cosine,
    forget_after,
    precision,
    resume,
    same_run,
    save_checkpoint,
    set_lr,
)
from cosmos_reason.types import Sample


class SFTRecipe(Recipe):
    """`train/sft_nano.yaml`, typed."""

    model: str = "nano"  # shipped name or a folder
    templates: tuple[str, ...] = ()  # only these questions; default: all
    freeze_vision: bool = True
    steps: int = 3000
    batch_size: int = 24  # rows of questions a step
    questions_per_row: int = 2
    note_rows: int = 0  # clips a step whose frames are described in words from the simulator's state
    recall_rows: int = 0  # rows of text a step that only practise getting from the end of a thought to the answer
    conclusion_rows: int = 0  # rows of text a step that practise keeping to the question and to one's own thought
    optimizer: Literal["adamw", "muon"] = "adamw"
    max_tokens: int = 1024


def main(path: str, overrides: Sequence[str] = ()) -> Path:
    """Load a recipe and run it; the folder of the trained model."""
    return finetune(config.load(Path(path), SFTRecipe, overrides))


def finetune(recipe: SFTRecipe) -> Path:
    """Train, resuming from the newest checkpoint in `recipe.out` if there is one; the folder of the trained model."""
    accelerator = Accelerator(mixed_precision=precision(recipe.precision), cpu=not torch.cuda.is_available())
    torch.manual_seed(recipe.seed)
    model, tokenizer = load_model(recipe.model)
    samples = training_samples(recipe)
    same_run(recipe.out, recipe, [*map(repr, samples), content(model_folder(recipe.model))])
    store = FrameStore.build(samples, recipe.cache, model.config.video_frames, model.config.vision_config.image_size)
    usable = sum(sample.video in store for sample in samples)
    accelerator.print(f"{usable} questions on {len(store.rows)} clips, {len(samples) - usable} on undecodable ones")
    pictures = Pictures(model, store, recipe)
    sources = row_sources(recipe, samples, store, tokenizer, model.tokens_per_frame)
    made = {"adamw": adamw, "muon": muon}[recipe.optimizer](model, recipe.lr, recipe.weight_decay)
    model, optimizer = accelerator.prepare(model.train(), made)
    done = resume(accelerator, recipe.out)
    # Sets the tokenizer's flags before several threads share it: setting them while another encodes is an error.
    tokenizer([""], add_special_tokens=False, split_special_tokens=True)
    forget_after(recipe.out, done)
    with RunLog(recipe.out, "sft", recipe.steps, done) as log:
        streams = [batches(rows, n, tokenizer.pad_token_id, done, recipe.steps) for rows, n in sources.values()]
        for step, parts in enumerate(zip(*streams, strict=True), done):
            set_lr(optimizer, lr := cosine(step, recipe.steps, recipe.lr, recipe.warmup))
            losses: dict[str, float] = {}
            for name, batch in zip(sources, parts, strict=True):
                with accelerator.autocast():
                    loss = loss_of(model, pictures, batch)
                check_finite(loss, step + 1, batch, recipe)
                accelerator.backward(loss)
                losses[name] = float(loss.detach())
            norm = accelerator.clip_grad_norm_(model.parameters(), recipe.clip_norm)
            optimizer.step()
            optimizer.zero_grad()
            log.step(step + 1)
            if (step + 1) % recipe.log_every == 0:
                tokens = sum(int(batch.attention_BL.sum()) for batch in parts)
                log.metrics(step + 1, {**losses, "lr": lr, "grad_norm": float(norm), "tokens": tokens})
            if (step + 1) % recipe.save_every == 0 or step + 1 == recipe.steps:
                save_checkpoint(accelerator, recipe.out, step + 1, recipe.keep)
    return save_model(accelerator.unwrap_model(model), tokenizer, recipe.out / "final")


def training_samples(recipe: SFTRecipe) -> list[Sample]:
    """The sets' rows of the wanted templates, with balanced answers."""
    read = [sample for folder in recipe.train_sets for sample in training_set(folder)]
    if unknown := set(recipe.templates) - {sample.template for sample in read}:
        raise UserError(
            f"templates: none of the sets asks {', '.join(sorted(unknown))}; see `template` in samples.jsonl"
        )
    samples = balance([s for s in read if not recipe.templates or s.template in recipe.templates], recipe.seed)
    print(f"{len(read)} questions read, {len(read) - len(samples)} left out for even answers or by `templates`")
    if not samples:
        raise UserError(
            f"{', '.join(map(str, recipe.train_sets))}: no sample is left after balancing; simulate more clips"
        )
    return samples


def row_sources(
    recipe: SFTRecipe, samples: list[Sample], store: FrameStore, tokenizer: PreTrainedTokenizerFast, per_frame: int
) -> dict[str, tuple[Rows, int]]:
    """What a step learns from, by the name of its loss: rows of one kind and how many of them."""
    sources: dict[str, tuple[Rows, int]] = {}
    if recipe.batch_size:
        asked = recipe.questions_per_row, recipe.seed, recipe.max_tokens
        sources["loss"] = RowMaker(samples, store, tokenizer, per_frame, *asked), recipe.batch_size
    if recipe.note_rows:
        sources["note_loss"] = NoteRows(samples, store, tokenizer, per_frame, recipe.seed), recipe.note_rows
    if recipe.recall_rows:
        sources["recall_loss"] = RecallRows(samples, tokenizer, recipe.seed), recipe.recall_rows
    if recipe.conclusion_rows:
        sources["conclusion_loss"] = ConclusionRows(samples, tokenizer, recipe.seed), recipe.conclusion_rows
    if not sources:
        raise UserError("nothing to learn from: batch_size and all other numbers of rows are 0; set one of them")
    return sources


class Pictures:
    """What the decoder sees: cached features of a frozen encoder, or pixels when the encoder learns too."""

    def __init__(self, model: HybridVLM, store: FrameStore, recipe: SFTRecipe) -> None:
        self._model, self._store = model, store
        self._features = None
        if recipe.freeze_vision:
            model.vision.requires_grad_(False)
            self._features = cached_features(model, store, recipe.cache)

    def features(self, clips_B: np.ndarray) -> Tensor:
        """(B · T, S, D) encoder features of these clips, frames in order."""
        if self._features is not None:
            return torch.from_numpy(self._features[clips_B]).flatten(0, 1)
        pixels = torch.from_numpy(self._store.pixels_NTHWC[clips_B])
        return self._model.encode_frames(self._model.normalise(pixels))


def cached_features(model: HybridVLM, store: FrameStore, cache: Path) -> np.ndarray:
    """Encode every frame of the store once; (N, T, S, D) float16, memory-mapped, keyed by weights and store."""
    stamp = hashlib.sha256(store.folder.name.encode())  # which changes with the clips' files, sizes and order
    for parameter in model.vision.parameters():
        stamp.update(parameter.detach().float().numpy().tobytes())
    path = cache / f"features-{stamp.hexdigest()[:16]}.npy"
    if not path.exists():
        encode_all(model, store, path)
    return np.load(path, mmap_mode="r")


@torch.no_grad()
def encode_all(model: HybridVLM, store: FrameStore, path: Path, batch: int = 32) -> None:
    """Write the features of all clips to `path` (renamed last)."""
    partial = path.with_suffix(".partial.npy")
    model.eval()
    count = len(store.rows)
    out: np.memmap | None = None
    for first in track(range(0, count, batch), "encoding clips"):
        pixels = torch.from_numpy(np.array(store.pixels_NTHWC[first : min(first + batch, count)]))
        features = model.encode_frames(model.normalise(pixels)).unflatten(0, pixels.shape[:2])
        if out is None:
            shape = (count, *features.shape[1:])
            out = np.lib.format.open_memmap(partial, mode="w+", dtype=np.float16, shape=shape)
        out[first : first + batch] = features.half().numpy()
    assert out is not None, "a frame store without clips cannot be opened"
    out.flush()
    partial.rename(path)


def loss_of(model: HybridVLM, pictures: Pictures, batch: Batch) -> Tensor:
    """Mean negative log-likelihood per supervised token."""
    return model(
        input_ids=batch.ids_BL,
        attention_mask=batch.attention_BL,
        vision_features=pictures.features(batch.clips_B) if batch.clips_B[0] >= 0 else None,
        labels=batch.labels_BL,
    ).loss


def check_finite(loss: Tensor, step: int, batch: Batch, recipe: SFTRecipe) -> None:
    """Stop before the optimiser step on NaN or infinity, keeping the batch that caused it."""
    if torch.isfinite(loss):
        return
    path = recipe.out / f"bad_batch_step_{step}.pt"
    torch.save(batch._asdict(), path)
    raise FloatingPointError(f"loss is {float(loss)} at step {step}; the batch is in {path}; lower lr ({recipe.lr})")
