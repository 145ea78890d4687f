"""Teach the projector the decoder's words: a feature becomes the sum of the embeddings of what stands in its place.

After this the decoder finds the red ball in the frames as it finds "red ball" in the text, by looking for like tokens,
and does not have to discover from answers which feature goes with which word. Only the projector learns, on cached
features, towards the (random, fixed) embedding table; a place without an object becomes the placeholder's embedding.

N clips, T frames, S tokens a frame, W words, V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from cosmos_reason.backends.local import load_model, save_model
from cosmos_reason.errors import UserError
from cosmos_reason.model.vlm import HybridVLM
from cosmos_reason.simulate.dataset import read_timeline, timeline_path, training_set
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.training.frames import FrameStore, clip_key
from cosmos_reason.training.notes import place
from cosmos_reason.training.run import Recipe, RunLog, cosine, forget_after, order, set_lr
from cosmos_reason.training.sft import cached_features
from cosmos_reason.types import Sample, Timeline

WORDS = 8  # token ids a place at most


class WordsRecipe(Recipe):
    """`train/words_nano.yaml`, typed."""

    model: str
    tokenizer: Path
    batch_clips: int = 64
    held_out_clips: int = 100


def train(recipe: WordsRecipe) -> Path:
    """Start a fresh decoder on the model's encoder and train its projector; the folder of the saved model."""
    torch.manual_seed(recipe.seed)
    model, _ = load_model(recipe.model)
    tokenizer = tokenizers.load(recipe.tokenizer)
    model.reset_language(len(tokenizer))
    samples = [sample for folder in recipe.train_sets for sample in training_set(folder)]
    store = FrameStore.build(samples, recipe.cache, model.config.video_frames, model.config.vision_config.image_size)
    features = cached_features(model, store, recipe.cache)
    rows, ids_NTSW = words_of(samples, store, tokenizer, model.tokens_per_frame)
    mixed = np.random.default_rng(0).permutation(len(rows))
    held = len(rows) - min(recipe.held_out_clips, max(1, len(rows) // 10))
    optimizer = torch.optim.AdamW(model.projector.parameters(), recipe.lr, weight_decay=recipe.weight_decay)
    clips = order(held, recipe.seed)
    forget_after(recipe.out, 0)
    with RunLog(recipe.out, "words", recipe.steps) as log:
        for step in range(recipe.steps):
            picks = mixed[[next(clips) for _ in range(recipe.batch_clips)]]
            set_lr(optimizer, cosine(step, recipe.steps, recipe.lr, recipe.warmup))
            loss, _ = word_loss(model, features[rows[picks]], ids_NTSW[picks])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            log.step(step + 1)
            if (step + 1) % recipe.log_every == 0:
                with torch.no_grad():
                    found = word_loss(model, features[rows[mixed[held:]]], ids_NTSW[mixed[held:]])[1]
                log.metrics(step + 1, {"loss": float(loss.detach()), "held_out_words_found": found})
    return save_model(model, tokenizer, recipe.out / "final")


def word_loss(model: HybridVLM, features: np.ndarray, ids_NTSW: np.ndarray) -> tuple[Tensor, float]:
    """Squared error to the sum of embeddings, objects and empty places weighing the same; share of words found.

    A word is found when its embedding is among the W nearest (by dot product) of a place with W words.
    """
    table_VD = model.backbone.embeddings.weight.detach()
    projected = model.projector(torch.from_numpy(np.ascontiguousarray(features)).float().flatten(0, 2))
    ids_PW = torch.from_numpy(ids_NTSW.reshape(-1, ids_NTSW.shape[-1])).long()
    named_PW = ids_PW >= 0
    filled_P = named_PW.any(1)
    target_PD = (table_VD[ids_PW.clamp(min=0)] * named_PW[..., None]).sum(1)
    target_PD[~filled_P] = table_VD[model.config.video_token_id]
    error_P = (projected - target_PD).square().mean(1)
    with torch.no_grad():
        scores = projected[filled_P] @ table_VD.T
        nearest = scores.topk(ids_PW.shape[1], dim=1).indices
        counts = named_PW[filled_P].sum(1, keepdim=True)
        allowed = torch.arange(ids_PW.shape[1]) < counts
        hits = ((nearest[:, :, None] == ids_PW[filled_P][:, None, :]) & allowed[:, :, None]).any(2)
        found = float(hits.sum() / counts.sum().clamp(min=1))
    parts = [error_P[at].sum() / at.sum().clamp(min=1) for at in (filled_P, ~filled_P)]
    return parts[0] + parts[1], found


def words_of(
    samples: Sequence[Sample], store: FrameStore, tokenizer: PreTrainedTokenizerFast, tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Store rows (N,) of the clips with a timeline; token ids (N, T, S, W) of what is in each place, −1 for none."""
    refs = {clip_key(s.video): s.video for s in samples if s.video in store and s.video.end_s is None}
    known: dict[str, list[int]] = {}
    rows, ids = [], []
    for ref in refs.values():
        if (path := timeline_path(ref)).is_file():
            rows.append(store.row(ref))
            ids.append(places_of(read_timeline(path), store.frames(ref).times_s_T, tokenizer, tokens, known))
    if not rows:
        raise UserError("words: none of the clips has a timeline (timelines/CLIP.json beside videos/)")
    return np.array(rows), np.stack(ids)


def places_of(
    timeline: Timeline, times_s_T: np.ndarray, tokenizer: PreTrainedTokenizerFast, tokens: int,
    known: dict[str, list[int]],
) -> np.ndarray:  # fmt: skip
    """(T, S, W) ids: name and place of the object that covers most of each cell of the grid, −1 where there is none."""
    side = int(tokens**0.5)
    assert side * side == tokens, f"{tokens} tokens a frame are no square grid"
    edges = np.linspace(0, 1000, side + 1)
    at_T = np.abs(timeline.times_s_T[None, :] - times_s_T[:, None]).argmin(axis=1)
    ids = np.full((len(at_T), tokens, WORDS), -1, dtype=np.int32)
    covered = np.full((len(at_T), side, side), 0.05)  # a share of the cell below which it stays empty
    for track in timeline.objects:
        for t, frame in enumerate(at_T):
            if not track.visible_T[frame]:
                continue
            x1, y1, x2, y2 = track.box_T4[frame]
            across = np.clip(np.minimum(edges[1:], x2) - np.maximum(edges[:-1], x1), 0, None)
            down = np.clip(np.minimum(edges[1:], y2) - np.maximum(edges[:-1], y1), 0, None)
            share = np.outer(down, across) * (side / 1000) ** 2
            text = f" {track.name} {place(*track.centre_xy_T2[frame])}"
            if text not in known:
                known[text] = tokenizer(text, add_special_tokens=False)["input_ids"][:WORDS]
            wins = share > covered[t]
            covered[t][wins] = share[wins]
            words = np.full(WORDS, -1, dtype=np.int32)
            words[: len(known[text])] = known[text]
            ids[t][wins.flatten()] = words
    return ids
