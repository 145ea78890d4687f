"""python train/nano.py [--out runs/nano]: how the shipped `nano` was made, start to end; every step resumes.

simulate the training set -> pre-train the encoder on state read-outs -> train the tokenizer on the questions
-> fine-tune -> pack weights, tokenizer and card into cosmos_reason/assets/nano.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.progress import Progress

from cosmos_reason import config
from cosmos_reason.backends.local import load_model, save_model
from cosmos_reason.simulate.dataset import read_set, write_set
from cosmos_reason.simulate.manipulation import TASKS
from cosmos_reason.simulate.registry import FAMILIES
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.text.answer import gold_completion, instruction
from cosmos_reason.training.sft import SFTRecipe, finetune
from cosmos_reason.training.vision import VisionRecipe, pretrain

ARM_FAMILIES = tuple(f"manipulation_{task.replace('-', '_')}" for task in TASKS)


def simulate(folder: Path, clips: int, arm_clips: int, workers: int) -> None:
    """Physics families and robot-arm tasks into one set."""
    for families, count in ((FAMILIES, clips), (ARM_FAMILIES, arm_clips)):
        with Progress() as bar:
            task = bar.add_task("simulating")
            write_set(folder, families, count, 0, workers, lambda n, total: bar.update(task, completed=n, total=total))


def corpus(folder: Path) -> Iterator[str]:
    """All text that the model will read or write."""
    for sample in read_set(folder):
        yield instruction(sample)
        yield gold_completion(sample)


def pack(trained: str, target: Path) -> None:
    """The shipped folder: weights in bfloat16."""
    model, tokenizer = load_model(trained)
    assert tokenizer is not None, f"{trained} has no tokenizer"
    save_model(model.to(torch.bfloat16), tokenizer, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/nano"))
    parser.add_argument("--clips", type=int, default=700, help="clips a physics family")
    parser.add_argument("--arm-clips", type=int, default=120, help="clips a robot-arm task")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", nargs="*", default=["simulate", "vision", "tokenizer", "sft", "pack"])
    args = parser.parse_args()
    data = args.out / "train"
    if "simulate" in args.steps:
        simulate(data, args.clips, args.arm_clips, args.workers)
    if "vision" in args.steps:
        pretrain(config.load(Path("train/vision_nano.yaml"), VisionRecipe, []))
    if "tokenizer" in args.steps:
        tokenizers.train(corpus(data), 1024, args.out / "tokenizer")
    if "sft" in args.steps:
        finetune(config.load(Path("train/sft_nano.yaml"), SFTRecipe, []))
    if "pack" in args.steps:
        pack(str(args.out / "sft" / "final"), Path("cosmos_reason/assets/nano"))


if __name__ == "__main__":
    main()
