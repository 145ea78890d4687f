"""Our hybrid models on this machine: `nano` and `nano-base` from the package, or a folder that training wrote.

folder -> (model, tokenizer) -> Tokens -> features -> generate -> Completion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from cosmos_reason.errors import UserError
from cosmos_reason.model.generate import Sampling, generate, stream
from cosmos_reason.model.vlm import HybridVLM
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.text.chat import render
from cosmos_reason.types import Completion, Frames, Prompt
from cosmos_reason.video import FrameSpec, pad_to_multiple

SHIPPED = ("nano", "nano-base")  # the latter sees, but was never asked anything: where fine-tuning may start


def model_folder(name: str) -> Path:
    """The folder of a shipped name or of a path; anything else is the caller's mistake."""
    folder = Path(str(files("cosmos_reason") / "assets" / name)) if name in SHIPPED else Path(name)
    if not folder.is_dir():
        raise UserError(f"no model {name!r}: wanted {', '.join(SHIPPED)} or a folder that training wrote")
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: no config.json; give a folder that training wrote, e.g. runs/sft/final")
    return folder


def load_model(name: str) -> tuple[HybridVLM, PreTrainedTokenizerFast]:
    """Weights in fp32 and the tokenizer beside them."""
    folder = model_folder(name)
    if not (folder / "tokenizer.json").is_file():
        raise UserError(f"{folder}: no tokenizer.json; give a folder that training wrote, e.g. runs/sft/final")
    transformers_logging.disable_progress_bar()  # nano loads in milliseconds; the bar would stand between answers
    model = HybridVLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), tokenizers.load(folder)


def save_model(model: HybridVLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    """A folder that `load_model` and `from_pretrained` open."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class LocalBackend:
    """A hybrid model that answers in this process."""

    def __init__(self, name: str) -> None:
        model, tokenizer = load_model(name)
        self.name, self.model, self.tokenizer = name, model, tokenizer
        self.spec = FrameSpec(count=model.config.video_frames)

    def stream(self, prompt: Prompt, max_tokens: int, temperature: float, seed: int) -> Iterator[str]:
        """Pieces of text; a piece ends where its bytes form whole characters."""
        sampling = self._sampling(max_tokens, temperature, [seed])
        ids: list[int] = []
        shown = ""
        for step in stream(self.model, *self._inputs([prompt]), sampling):
            ids.append(int(step.ids_B[0]))
            text = self._text(ids)
            if not text.endswith("�"):
                yield text[len(shown) :]
                shown = text

    def complete(self, prompts: Sequence[Prompt], max_tokens: int, temperature: float, seed: int) -> list[Completion]:
        """One batch, left-padded; row i samples with seed + i."""
        sampling = self._sampling(max_tokens, temperature, [seed + i for i in range(len(prompts))])
        rows = generate(self.model, *self._inputs(prompts), sampling)
        return [Completion(self._text(list(r.ids_L)), r.ids_L, r.logprobs_L, r.finish_reason) for r in rows]

    def _sampling(self, max_tokens: int, temperature: float, seeds: list[int]) -> Sampling:
        return Sampling(
            temperature=temperature,
            max_new_tokens=max_tokens,
            eos_ids=(self.tokenizer.eos_token_id,),
            pad_id=self.tokenizer.pad_token_id,
            seeds=tuple(seeds),
        )

    def _text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def _inputs(self, prompts: Sequence[Prompt]) -> tuple[Tensor, Tensor, Tensor | None]:
        """Left-padded ids, attention mask and encoder features of all media of the batch, in order."""
        prompts = [self._filled(p) for p in prompts]
        rows = [
            render(p, self.tokenizer, self.model.tokens_per_frame, add_generation_prompt=True).ids_L for p in prompts
        ]
        length = max(len(row) for row in rows)
        ids_BL = np.full((len(rows), length), self.tokenizer.pad_token_id, dtype=np.int64)
        mask_BL = np.zeros_like(ids_BL)
        for i, row in enumerate(rows):
            ids_BL[i, length - len(row) :], mask_BL[i, length - len(row) :] = row, 1
        media = [frames for prompt in prompts for frames in prompt.media]
        return torch.from_numpy(ids_BL), torch.from_numpy(mask_BL), self._features(media)

    def _filled(self, prompt: Prompt) -> Prompt:
        """Videos with fewer frames than the model learned from repeat their last one, as they do in training."""
        least = self.model.config.video_frames
        media = tuple(pad_to_multiple(f, least) if 1 < len(f.pixels_THWC) < least else f for f in prompt.media)
        return replace(prompt, media=media)

    @torch.no_grad()
    def _features(self, media: Sequence[Frames]) -> Tensor | None:
        if not media:
            return None
        pixels = torch.cat([self.model.preprocess(frames.pixels_THWC) for frames in media])
        return self.model.encode_frames(pixels)
