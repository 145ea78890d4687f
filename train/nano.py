"""python train/nano.py [sets|vision|tokenizer|sft|pack ...]: how the shipped `nano` was made; every step resumes.

sets: simulate 500 clips of each physics family and 150 of each robot-arm task; vision: pre-train the encoder on state
read-outs (train/vision_nano.yaml); tokenizer: learn the vocabulary from the questions and answers; sft: fine-tune
(train/sft_nano.yaml); pack: weights in bfloat16, time constants in float32 -> cosmos_reason/assets/nano.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from cosmos_reason import config
from cosmos_reason.backends.local import load_model, save_model
from cosmos_reason.simulate.dataset import read_set
from cosmos_reason.simulate.manipulation_tasks import TASKS
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.text.answer import gold_completion, instruction
from cosmos_reason.training import sft
from cosmos_reason.training.vision import VisionRecipe, pretrain

SETS = (Path("runs/nano/physics"), Path("runs/nano/arm"))
VOCABULARY = 1024


def sets() -> None:
    """Both sets, by the command line: its workers need no torch, which this process has loaded."""
    arm = [f"--families=manipulation_{task.replace('-', '_')}" for task in TASKS]
    for folder, clips, families in ((SETS[0], 500, []), (SETS[1], 150, arm)):
        command = [sys.executable, "-m", "cosmos_reason", "simulate", str(folder), f"--clips={clips}", *families]
        subprocess.run(command, check=True)


def corpus() -> Iterator[str]:
    """All text that the model will read or write."""
    for folder in SETS:
        for sample in read_set(folder):
            yield instruction(sample)
            yield gold_completion(sample)


def pack() -> None:
    """The shipped folder."""
    model, tokenizer = load_model("runs/nano/sft/final")
    assert tokenizer is not None, "fine-tuning saves its tokenizer"
    for name, parameter in model.named_parameters():
        if name.rsplit(".", 1)[-1] not in model._keep_in_fp32_modules_strict:  # time constants, which bf16 would shift
            parameter.data = parameter.data.to(torch.bfloat16)
    save_model(model, tokenizer, Path("cosmos_reason/assets/nano"))


STEPS = {
    "sets": sets,
    "vision": lambda: pretrain(config.load(Path("train/vision_nano.yaml"), VisionRecipe)),
    "tokenizer": lambda: tokenizers.train(corpus(), VOCABULARY, Path("runs/nano/tokenizer")),
    "sft": lambda: sft.main("train/sft_nano.yaml"),
    "pack": pack,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or STEPS:
        STEPS[name]()
