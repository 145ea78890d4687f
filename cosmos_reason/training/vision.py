"""Pre-train the vision encoder on state read-outs: frames -> features -> what stands where, for every frame.

Answers of one word do not teach a small encoder to see; a dense read-out of the simulator's state does. A slot is a
colour ("red") or, in manipulation, a role ("gripper"). For each slot of each frame a small head, thrown away after
training, reads from the encoder's tokens whether the object is visible, its box and its shape.

F frames, S tokens a frame, D width, K slots, 4 box corners (0..1).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional as F

from cosmos_reason.model.sizes import build
from cosmos_reason.model.vlm import HybridVLM
from cosmos_reason.simulate.dataset import read_timeline, timeline_path, training_set
from cosmos_reason.training.frames import FrameStore, clip_key
from cosmos_reason.training.run import (
    Recipe,
    RunLog,
    adamw,
    cosine,
    forget_after,
    order,
    precision,
    resume,
    same_run,
    save_checkpoint,
    set_lr,
)
from cosmos_reason.types import ObjectTrack, Sample, Timeline


class VisionRecipe(Recipe):
    """`train/vision_nano.yaml`, typed."""

    size: str = "nano"
    frames: int = 8
    image_size: int = 64
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
    at_T = np.abs(timeline.times_s_T[None, :] - times_s_T[:, None]).argmin(axis=1)
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


class ClipStates:
    """Frames and truths of a simulated set, by clip."""

    def __init__(self, samples: Sequence[Sample], store: FrameStore, slots: Slots | None) -> None:
        refs = list({clip_key(s.video): s.video for s in samples if s.video in store}.values())
        # Shuffled, so that the clips held out at the end are of every family and set.
        refs = [refs[i] for i in np.random.default_rng(0).permutation(len(refs))]
        timelines = [read_timeline(timeline_path(ref)) for ref in refs]
        self.slots = slots or Slots.collect(timelines)
        self.rows = np.array([store.row(ref) for ref in refs])
        truths = [truth_of(t, store.times_s_NT[row], self.slots) for t, row in zip(timelines, self.rows, strict=True)]
        self.visible, self.box, self.shape = (np.stack(part) for part in zip(*truths, strict=True))
        self.pixels = store.pixels_NTHWC

    def batch(self, picks: np.ndarray) -> tuple[Tensor, Truth]:
        """Frames picked by clip · T + frame: pixels (F, H, W, C) uint8 and their truth."""
        clip, frame = np.divmod(picks, self.visible.shape[1])
        pixels = torch.from_numpy(self.pixels[self.rows[clip], frame])
        visible, box, shape = (torch.from_numpy(a[clip, frame]) for a in (self.visible, self.box, self.shape))
        return pixels, Truth(visible.float(), box.float(), shape.long())


def pretrain(recipe: VisionRecipe) -> Path:
    """Train the encoder of a fresh model of the named size; the folder of the saved model."""
    accelerator = Accelerator(mixed_precision=precision(recipe.precision), cpu=not torch.cuda.is_available())
    torch.manual_seed(recipe.seed)
    samples = [sample for folder in recipe.train_sets for sample in training_set(folder)]
    same_run(recipe.out, recipe, sorted({sample.video.path for sample in samples}))
    store = FrameStore.build(samples, recipe.cache, recipe.frames, recipe.image_size)
    states = ClipStates(samples, store, None)
    held = (len(states.rows) - min(recipe.held_out_clips, len(states.rows) // 10)) * recipe.frames
    model = build(recipe.size)
    with torch.no_grad():
        tokens, width = model.encode_frames(model.normalise(states.batch(np.arange(1))[0])).shape[1:]
    head = Readout(states.slots, width, tokens)
    trained = nn.ModuleDict({"vision": model.vision, "head": head})
    trained, optimizer = accelerator.prepare(trained, adamw(trained, recipe.lr, recipe.weight_decay))
    done = resume(accelerator, recipe.out)
    forget_after(recipe.out, done)
    with RunLog(recipe.out, "vision", recipe.steps, done) as log:
        ids = order(held, recipe.seed, done * recipe.batch_frames)
        for step in range(done, recipe.steps):
            pixels, truth = states.batch(np.array([next(ids) for _ in range(recipe.batch_frames)]))
            set_lr(optimizer, cosine(step, recipe.steps, recipe.lr, recipe.warmup))
            with accelerator.autocast():
                read = head(model.encode_frames(model.normalise(pixels)))
            loss, metrics = readout_loss(read, truth)
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
                log.metrics(step + 1, held_out_metrics(model, head, states, held, accelerator))
                save_checkpoint(accelerator, recipe.out, step + 1, recipe.keep)
    return save_model(model, states.slots, recipe.out)


@torch.no_grad()
def held_out_metrics(
    model: HybridVLM, head: Readout, states: ClipStates, first: int, accelerator: Accelerator
) -> dict[str, float]:
    """Read-out accuracies on the clips kept out of training."""
    total = len(states.rows) * states.visible.shape[1]
    sums: Counter[str] = Counter()
    picks = np.array_split(np.arange(first, total), max(1, (total - first) // 256))
    for part in picks:
        pixels, truth = states.batch(part)
        with accelerator.autocast():
            read = head(model.encode_frames(model.normalise(pixels)))
        sums.update(readout_loss(read, truth)[1])
    return {f"held_out_{name}": value / len(picks) for name, value in sums.items()}


def save_model(model: HybridVLM, slots: Slots, out: Path) -> Path:
    """Save the whole model (its language part still untrained) and the slots that were read."""
    folder = out / "final"
    model.save_pretrained(folder)
    (folder / "readout_slots.json").write_text(json.dumps({"names": slots.names, "shapes": slots.shapes}))
    return folder
