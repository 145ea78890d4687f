"""What every training run shares: its folder, metrics on disk and on screen, schedules, data order, checkpoints.

A run folder holds `metrics.jsonl`, `tensorboard/`, `checkpoints/step_N/` and, when finished, `final/`. Data order is a
pure function of (seed, position), so resuming needs no loader state: the restarted run asks for the same ids.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from accelerate import Accelerator
from pydantic import BaseModel, ConfigDict
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from cosmos_reason.errors import UserError


class Recipe(BaseModel):
    """What the recipes of all stages name. Paths are relative to where the command runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    train_sets: tuple[Path, ...]
    out: Path
    cache: Path
    steps: int
    lr: float = 1.5e-3
    warmup: int = 100
    weight_decay: float = 0.05
    clip_norm: float = 1.0
    seed: int = 0
    log_every: int = 20
    save_every: int = 250
    keep: int = 2
    precision: Literal["auto", "bf16", "fp32"] = "auto"


class RunLog:
    """Metrics of one run: a progress bar, `metrics.jsonl` (one flushed row a call) and TensorBoard scalars."""

    def __init__(self, folder: Path, title: str, steps: int, done: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / "metrics.jsonl").open("a")
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1 if done else None)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._task = self._progress.add_task(title, total=steps, completed=done, note="")
        self._progress.start()

    def step(self, step: int) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=step)

    def metrics(self, step: int, values: dict[str, float]) -> None:
        """Write one row of finite numbers; the bar shows the first three."""
        self._file.write(json.dumps({"step": step, "time": round(time.time(), 3), **values}) + "\n")
        self._file.flush()
        for name, value in values.items():
            self._board.add_scalar(name, value, step)
        note = "  ".join(f"{name} {value:.4g}" for name, value in list(values.items())[:3])
        self._progress.update(self._task, note=note)
        if not self._progress.console.is_terminal:  # a log file gets lines instead of a redrawn bar
            self._progress.console.print(f"step {step}  {note}")

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the bar and close the files, also when the run is interrupted."""
        self._progress.stop()
        self._file.close()
        self._board.close()


def precision(wanted: Literal["auto", "bf16", "fp32"]) -> Literal["bf16", "no"]:
    """Mixed precision for Accelerate. "auto" takes bf16 where the hardware multiplies it: GPUs, AVX-512-BF16, AMX."""
    fast = torch.cuda.is_available() or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return "bf16" if wanted == "bf16" or (wanted == "auto" and fast) else "no"


def cosine(step: int, steps: int, peak: float, warmup: int, floor: float = 0.1) -> float:
    """Learning rate at `step` (from 0): linear warm-up to `peak`, then a half cosine down to `floor` · peak."""
    if step < warmup:
        return peak * (step + 1) / warmup
    done = min(1.0, (step - warmup) / max(1, steps - warmup))
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done)))


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """One learning rate for every group."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def adamw(model: nn.Module, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW (β 0.9, 0.95) over the trainable parameters; decay on matrices only.

    Vectors (norms, biases, A_log, D, dt_bias), the convolution and embeddings take no decay: the state-space scalars
    set time constants, and shrinking them changes how long the model remembers.
    """
    decay: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        matrix = parameter.ndim >= 2 and "conv1d" not in name and "embed" not in name and "position" not in name
        (decay if matrix else plain).append(parameter)
    groups = [{"params": decay, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)


def order(count: int, seed: int, start: int = 0) -> Iterator[int]:
    """Endless shuffled positions 0..count−1, a new permutation each epoch; `start` skips to where a run stopped."""
    epoch, offset = divmod(start, count)
    while True:
        for index in np.random.default_rng([seed, epoch]).permutation(count)[offset:]:
            yield int(index)
        epoch, offset = epoch + 1, 0


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first, by number (step_500 comes before step_2500)."""
    found = [p for p in (folder / "checkpoints").glob("step_*") if p.name[5:].isdigit()]
    return sorted(found, key=lambda p: int(p.name[5:]))


def save_checkpoint(accelerator: Accelerator, folder: Path, step: int, keep: int = 2) -> None:
    """Write weights, optimiser and random state to a new folder, rename it last, then keep the newest `keep` only."""
    target = folder / "checkpoints" / f"step_{step}"
    partial = target.with_name(target.name + ".partial")
    if accelerator.is_main_process:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(partial), safe_serialization=True)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        partial.rename(target)
        for old in checkpoints(folder)[:-keep]:
            shutil.rmtree(old)


def content(folder: str | Path) -> str:
    """A digest of the weights and the vocabulary in a folder."""
    digest = hashlib.sha256()
    for path in sorted(Path(folder).iterdir()):
        if path.suffix == ".safetensors" or path.name == "tokenizer.json":
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def same_run(folder: Path, recipe: Recipe, data: Iterable[str]) -> None:
    """Note what this run is made of in `run.json`; refuse to go on with a run that was made of something else.

    `steps`, the logging and the saving may change between a stop and its continuation, nothing that shapes the weights.
    """
    free = {"steps", "log_every", "save_every", "keep", "out", "cache"}
    stamp = hashlib.sha256("\n".join(data).encode()).hexdigest()[:16]
    now = {**recipe.model_dump(mode="json", exclude=free), "data": stamp}
    path = folder / "run.json"
    if checkpoints(folder) and path.exists():
        then = json.loads(path.read_text())
        if changed := sorted(name for name in {*now, *then} if now.get(name) != then.get(name)):
            raise UserError(
                f"{folder}: holds a run with other {', '.join(changed)}; give another `out`, or delete that folder"
            )
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(now, indent=1))


def resume(accelerator: Accelerator, folder: Path) -> int:
    """Load the newest checkpoint into the prepared objects; the number of steps done, 0 without one."""
    found = checkpoints(folder)
    if not found:
        return 0
    accelerator.load_state(str(found[-1]))
    return int(found[-1].name[5:])


def forget_after(folder: Path, step: int) -> None:
    """Drop rows that a killed run logged after its last checkpoint, so that no step stands twice in the metrics."""
    path = folder / "metrics.jsonl"
    if path.exists():
        rows = [line for line in path.read_text().splitlines() if _step_of(line) <= step]
        path.write_text("".join(row + "\n" for row in rows))


def _step_of(line: str) -> float:
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError:  # the half-written last row of a killed run
        return math.inf
    return float(row["step"])
