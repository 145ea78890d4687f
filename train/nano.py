"""python train/nano.py [vision|tokenizer|sft|pack ...]: how the shipped `nano` was made; every step resumes.

Before it, the two sets, whose workers must not load torch:

    cosmos-reason simulate runs/nano/physics --clips 500
    cosmos-reason simulate runs/nano/arm --clips 80 --families manipulation_drawer_close --families …

vision: pre-train the encoder on state read-outs (train/vision_nano.yaml); tokenizer: learn the vocabulary from the
questions and answers; sft: fine-tune (train/sft_nano.yaml); pack: weights in bfloat16 -> cosmos_reason/assets/nano.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from cosmos_reason import config
from cosmos_reason.backends.local import load_model, save_model
from cosmos_reason.simulate.dataset import read_set
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.text.answer import gold_completion, instruction
from cosmos_reason.training import sft
from cosmos_reason.training.vision import VisionRecipe, pretrain

SETS = (Path("runs/nano/physics"), Path("runs/nano/arm"))
VOCABULARY = 1024


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
    save_model(model.to(torch.bfloat16), tokenizer, Path("cosmos_reason/assets/nano"))


STEPS = {
    "vision": lambda: pretrain(config.load(Path("train/vision_nano.yaml"), VisionRecipe)),
    "tokenizer": lambda: tokenizers.train(corpus(), VOCABULARY, Path("runs/nano/tokenizer")),
    "sft": lambda: sft.main("train/sft_nano.yaml"),
    "pack": pack,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or STEPS:
        STEPS[name]()
