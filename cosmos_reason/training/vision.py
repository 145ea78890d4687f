"""Pre-train encoder and projector on the simulator's state: frames -> features -> what stands where and how it moves.

Answers of one word do not teach a small encoder to see; a dense read-out of the state does. Two at once: the projector
writes the decoder's words into every place (`words.py`), and a small head, thrown away after training, reads for each
slot of each frame whether the object is visible, its box and its shape. A slot is a colour ("red") or, in manipulation,
a role ("gripper").

F frames, S tokens a frame, D width, K slots, W words, 4 box corners (0..1).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast

from cosmos_reason.backends.local import save_model
from cosmos_reason.errors import UserError
from cosmos_reason.model.config import HybridVLMConfig
from cosmos_reason.model.sizes import SIZES, build
from cosmos_reason.model.vision import normalise
from cosmos_reason.model.vlm import HybridVLM
from cosmos_reason.simulate.dataset import training_set
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.training.frames import FrameStore, told_clips
from cosmos_reason.training.muon import muon
from cosmos_reason.training.run import (
    Recipe,
    RunLog,
    content,
    cosine,
    forget_after,
    order,
    precision,
    resume,
    same_run,
    save_checkpoint,
    set_lr,
)
from cosmos_reason.training.words import places_of, word_loss
from cosmos_reason.types import ObjectTrack, Sample, Timeline

WORD_WEIGHT = 4.0  # weight of the word loss; it starts at about 1


class VisionRecipe(Recipe):
    """`train/vision_nano.yaml`, typed."""

    size: str = "nano"
    tokenizer: Path
    steps: int = 1200
    batch_frames: int = 192
    held_out_clips: int = 200


@dataclass(frozen=True)
class Slots:
    """The names a read-out speaks of: objects by colour or role, and shapes."""

    names: tuple[str, ...]
    shapes: tuple[str, ...]

    @staticmethod
    def collect(timelines: Sequence[Timeline], least: int = 20) -> Slots:
        """Every slot and shape that at least `least` clips show."""
        names = Counter(n for t in timelines for n in {slot_name(o) for o in t.objects})
        shapes = Counter(s for t in timelines for s in {o.shape for o in t.objects})
        return Slots(
            tuple(sorted(n for n, count in names.items() if count >= least)),
            tuple(sorted(s for s, count in shapes.items() if count >= least)),
        )


def slot_name(track: ObjectTrack) -> str:
    """Free objects are told apart by colour (unique in a clip); fixtures and robot parts by role or name."""
    return track.colour if track.role == "object" and track.colour else f"{track.role}:{track.shape}"


class Truth(NamedTuple):
    """State of some frames as the head should read it."""

    visible_FK: Tensor  # float, 1 where the slot's object can be seen
    box_FK4: Tensor  # float, 0..1, clipped to the picture
    shape_FK: Tensor  # int64, index into Slots.shapes, −1 where there is nothing to read


class Readout(nn.Module):
    """Slot queries that attend to one frame's tokens and read visibility, box and shape."""

    def __init__(self, slots: Slots, token_width: int, tokens: int, width: int = 160) -> None:
        super().__init__()
        self.input = nn.Linear(token_width, width)
        self.position = nn.Parameter(torch.randn(tokens, width) * 0.02)
        self.query = nn.Parameter(torch.randn(len(slots.names), width) * 0.02)
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mix = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.norm = nn.LayerNorm(width)
        self.read = nn.Linear(width, 1 + 4 + len(slots.shapes))

    def forward(self, features_FSD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(F, S, D) -> visibility logits (F, K), boxes (F, K, 4) in 0..1, shape logits (F, K, shapes)."""
        tokens = self.input(features_FSD) + self.position
        query = self.query.expand(len(tokens), -1, -1)
        found = query + self.attend(query, tokens, tokens, need_weights=False)[0]
        read = self.read(self.norm(found + self.mix(found)))
        return read[..., 0], read[..., 1:5].sigmoid(), read[..., 5:]


def truth_of(timeline: Timeline, times_s_T: np.ndarray, slots: Slots) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """State at the frames nearest to `times_s_T`: visible (T, K), box (T, K, 4) and shape (T, K) as NumPy arrays."""
    at_T = timeline.nearest(times_s_T)
    count, K = len(times_s_T), len(slots.names)
    visible, box, shape = np.zeros((count, K)), np.zeros((count, K, 4)), np.full((count, K), -1)
    for track in timeline.objects:
        name = slot_name(track)
        if name not in slots.names:
            continue
        k = slots.names.index(name)
        visible[:, k] = np.maximum(visible[:, k], track.visible_T[at_T])
        box[:, k] = np.clip(track.box_T4[at_T] / 1000.0, 0, 1)
        if track.shape in slots.shapes:
            shape[:, k] = slots.shapes.index(track.shape)
    return visible, box, shape


def readout_loss(read: tuple[Tensor, Tensor, Tensor], truth: Truth) -> tuple[Tensor, dict[str, float]]:
    """Binary cross-entropy on visibility + 5 · L1 on boxes + cross-entropy on shapes, the last two where visible."""
    logits_FK, box_FK4, shape_FKZ = (r.float() for r in read)
    seen_FK = truth.visible_FK > 0.5
    visible_loss = F.binary_cross_entropy_with_logits(logits_FK, truth.visible_FK)
    if not seen_FK.any():
        return visible_loss, {"visible": float(visible_loss.detach())}
    box_error = (box_FK4 - truth.box_FK4).abs()[seen_FK]
    named_FK = seen_FK & (truth.shape_FK >= 0)
    shape_loss = F.cross_entropy(shape_FKZ[named_FK], truth.shape_FK[named_FK]) if named_FK.any() else visible_loss * 0
    with torch.no_grad():
        metrics = {
            "visible_acc": float(((logits_FK > 0) == seen_FK).float().mean()),
            "found": float((logits_FK > 0)[seen_FK].float().mean()),
            "box_error": float(box_error.mean()),
            "shape_acc": float((shape_FKZ.argmax(-1) == truth.shape_FK)[named_FK].float().mean()),
        }
    return 4 * visible_loss + 5 * box_error.mean() + 0.5 * shape_loss, metrics


class StateBatch(NamedTuple):
    """Some frames as the encoder takes them, and what it should make of them."""

    pixels_FCHW: Tensor
    truth: Truth
    words_FSW: Tensor  # int64, token ids of each place, −1 for none


class ClipStates:
    """Frames and truths of a simulated set, by clip."""

    def __init__(
        self, samples: Sequence[Sample], store: FrameStore, tokenizer: PreTrainedTokenizerFast, config: HybridVLMConfig
    ) -> None:
        told = told_clips(samples, store)
        if not told:
            raise UserError("vision: none of the clips has a timeline (timelines/CLIP.json beside videos/)")
        # Shuffled, so that the clips held out at the end are of every family and set.
        told = [told[i] for i in np.random.default_rng(0).permutation(len(told))]
        self.slots = Slots.collect([timeline for _, timeline in told])
        self.rows = np.array([store.row(ref) for ref, _ in told])
        self._store, self._config, known = store, config.vision_config, dict[str, list[int]]()
        truths = []
        for (_, timeline), row in zip(told, self.rows, strict=True):
            times_s_T = store.times_s_NT[row]
            words = places_of(timeline, times_s_T, tokenizer, self._config.tokens_per_frame, known)
            truths.append((*truth_of(timeline, times_s_T, self.slots), words))
        self.visible, self.box, self.shape, self.words = (np.stack(part) for part in zip(*truths, strict=True))

    def batch(self, picks: np.ndarray) -> StateBatch:
        """Frames picked by clip · T + frame."""
        clip, frame = np.divmod(picks, self.visible.shape[1])
        # As `with_past` stacks whole clips, for single frames.
        past = [np.maximum(frame - k, 0) for k in range(self._config.stem_frames)]
        pixels = np.concatenate([self._store.pixels_NTHWC[self.rows[clip], at] for at in past], axis=-1)
        visible, box, shape, words = (
            torch.from_numpy(a[clip, frame]) for a in (self.visible, self.box, self.shape, self.words)
        )
        truth = Truth(visible.float(), box.float(), shape.long())
        return StateBatch(normalise(torch.from_numpy(pixels), self._config), truth, words.long())


class Pretraining(nn.Module):
    """Encoder, projector and read-out head, and the loss of a batch through all three."""

    table_VD: Tensor

    def __init__(self, model: HybridVLM, slots: Slots) -> None:
        super().__init__()
        self.vision = model.vision
        self.projector = model.projector
        self.head = Readout(slots, model.config.vision_config.feature_size, model.tokens_per_frame)
        # The decoder's embeddings are what the projector writes in; they do not learn here.
        self.register_buffer("table_VD", model.backbone.embeddings.weight.detach(), persistent=False)
        self._empty_id = model.config.video_token_id

    def forward(self, batch: StateBatch) -> tuple[Tensor, dict[str, float]]:
        """Loss and metrics."""
        features_FSE = self.vision(batch.pixels_FCHW)
        loss, metrics = readout_loss(self.head(features_FSE), batch.truth)
        written_PD, ids_PW = self.projector(features_FSE).flatten(0, 1), batch.words_FSW.flatten(0, 1)
        words, found = word_loss(written_PD, ids_PW, self.table_VD, self._empty_id)
        return loss + WORD_WEIGHT * words, {**metrics, "words_found": found, "word_error": float(words.detach())}


def pretrain(recipe: VisionRecipe) -> Path:
    """Train encoder and projector of a fresh model of the named size; the folder of the saved model."""
    accelerator = Accelerator(mixed_precision=precision(recipe.precision), cpu=not torch.cuda.is_available())
    torch.manual_seed(recipe.seed)
    samples = [sample for folder in recipe.train_sets for sample in training_set(folder)]
    same_run(recipe.out, recipe, [*sorted({s.video.path for s in samples}), content(recipe.tokenizer)])
    if recipe.size in SIZES and not isinstance(SIZES[recipe.size](), HybridVLMConfig):
        raise UserError(f"size: wanted one that sees, got {recipe.size}, a language model; set size: nano")
    model, tokenizer = build(recipe.size), tokenizers.load(recipe.tokenizer)
    model.reset_language(len(tokenizer))
    frames = model.config.video_frames
    store = FrameStore.build(samples, recipe.cache, frames, model.config.vision_config.image_size)
    states = ClipStates(samples, store, tokenizer, model.config)
    held = (len(states.rows) - min(recipe.held_out_clips, max(1, len(states.rows) // 10))) * frames
    trained = Pretraining(model, states.slots)
    trained, optimizer = accelerator.prepare(trained, muon(trained, recipe.lr, recipe.weight_decay))
    done = resume(accelerator, recipe.out)
    forget_after(recipe.out, done)
    with RunLog(recipe.out, "vision", recipe.steps, done) as log:
        ids = order(held, recipe.seed, done * recipe.batch_frames)
        for step in range(done, recipe.steps):
            batch = states.batch(np.array([next(ids) for _ in range(recipe.batch_frames)]))
            set_lr(optimizer, cosine(step, recipe.steps, recipe.lr, recipe.warmup))
            with accelerator.autocast():
                loss, metrics = trained(batch)
            if not torch.isfinite(loss):
                raise FloatingPointError(
                    f"loss is {float(loss)} at step {step + 1}; lower lr ({recipe.lr}) or set precision: fp32"
                )
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(trained.parameters(), recipe.clip_norm)
            optimizer.step()
            optimizer.zero_grad()
            log.step(step + 1)
            if (step + 1) % recipe.log_every == 0:
                log.metrics(step + 1, {"loss": float(loss.detach()), **metrics})
            if (step + 1) % recipe.save_every == 0 or step + 1 == recipe.steps:
                log.metrics(step + 1, held_out_metrics(trained, states, held, accelerator))
                save_checkpoint(accelerator, recipe.out, step + 1, recipe.keep)
    return save_model(model, tokenizer, recipe.out / "final")


@torch.no_grad()
def held_out_metrics(
    trained: Pretraining, states: ClipStates, first: int, accelerator: Accelerator
) -> dict[str, float]:
    """What is read and written right of the clips kept out of training; a part without objects counts for nothing."""
    total = len(states.rows) * states.visible.shape[1]
    found: dict[str, list[float]] = defaultdict(list)
    for part in np.array_split(np.arange(first, total), max(1, (total - first) // 256)):
        with accelerator.autocast():
            for name, value in trained(states.batch(part))[1].items():
                found[name].append(value)
    return {f"held_out_{name}": float(np.mean(values)) for name, values in found.items()}
