"""python train/nano.py [sets|tokenizer|vision|base|sft|more …]: how `nano` was made; training resumes.

sets: simulate 500 clips of each physics family and 150 of each robot-arm task; tokenizer: learn the vocabulary from the
questions, answers and notes; vision: pre-train encoder and projector on the state (train/vision_nano.yaml); base: teach
the decoder to see and to look back (train/base_nano.yaml); sft: fine-tune it on questions (train/sft_nano.yaml); more:
on questions and on keeping to them (train/more_nano.yaml). `base` and `more` end as cosmos_reason/assets/nano-base and
nano: weights in bfloat16, time constants in float32.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from cosmos_reason import config
from cosmos_reason.backends.local import load_model, save_model
from cosmos_reason.simulate.dataset import read_set, read_timeline, timeline_path
from cosmos_reason.simulate.manipulation_tasks import TASKS
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.text.answer import gold_completion, instruction
from cosmos_reason.text.chat import SYSTEM
from cosmos_reason.training import sft
from cosmos_reason.training.notes import courses
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
    """All text that the model will read or write, the frame of the conversation and the notes of frames included."""
    for folder in SETS:
        clips = set()
        for sample in read_set(folder):
            yield f"system\n{SYSTEM}\nuser\n{instruction(sample)}\nassistant\n{gold_completion(sample)}"
            clips.add(timeline_path(sample.video))
        for path in sorted(clips):
            timeline = read_timeline(path)
            for course in courses(timeline, timeline.times_s_T[::2]):
                yield course.whole + "".join(course.at(t) + ";" for t, place in enumerate(course.places) if place)


def pack(trained: Path, name: str) -> None:
    """A trained folder as it is shipped."""
    model, tokenizer = load_model(str(trained))
    for path, parameter in model.named_parameters():
        if path.rsplit(".", 1)[-1] not in model._keep_in_fp32_modules_strict:  # time constants, which bf16 would shift
            parameter.data = parameter.data.to(torch.bfloat16)
    save_model(model, tokenizer, Path("cosmos_reason/assets") / name)


STEPS = {
    "sets": sets,
    "tokenizer": lambda: tokenizers.train(corpus(), VOCABULARY, Path("runs/nano/tokenizer")),
    "vision": lambda: pretrain(config.load(Path("train/vision_nano.yaml"), VisionRecipe)),
    "base": lambda: pack(sft.main("train/base_nano.yaml"), "nano-base"),
    "sft": lambda: sft.main("train/sft_nano.yaml"),
    "more": lambda: pack(sft.main("train/more_nano.yaml"), "nano"),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or STEPS:
        STEPS[name]()
