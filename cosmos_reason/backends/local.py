"""Our hybrid models on this machine: `nano` and `nano-base` from the package, or a folder that training wrote.

folder -> (model, tokenizer) -> Tokens -> features -> generate -> Completion. The engine knows ids only; what ends a row
by its text, `TextUntil`, is here.
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
from cosmos_reason.model.generate import generate, stream
from cosmos_reason.model.sampling import Sampling
from cosmos_reason.model.vlm import HybridVLM
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.text.chat import render
from cosmos_reason.types import Completion, Frames, Prompt
from cosmos_reason.video import FrameSpec, pad_to_multiple

UNDECODED = "\N{REPLACEMENT CHARACTER}"  # what a tokenizer writes for bytes that are no character, or not yet
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


class TextUntil:
    """The ids of one row as text, as they come, up to the first stop string.

    A token may hold part of a character or of a stop string, or several of them. `text` is what no later id can change:
    it ends with a whole character and leaves out what may turn out to be the beginning of a stop string.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, stop: Sequence[str] = ()) -> None:
        if isinstance(stop, str) or "" in stop:
            raise UserError(f"stop: wanted a list of strings, none of them empty, got {stop!r}")
        self._tokenizer, self._stop = tokenizer, stop
        self._ids: list[int] = []  # the last ones, from one end of a character on
        self._read = 0  # so many of them are in the text; they only tell how the next is spaced
        self._waiting = ""  # whole characters that may begin a stop string
        self.text = ""
        self.ended = False

    def push(self, token: int) -> bool:
        """Take the next id; whether a stop string is complete with it."""
        self._ids.append(token)
        new = self._unread()
        whole = new.rstrip(UNDECODED)
        if not self._cut(self._waiting + whole) and whole and whole == new:
            self._ids, self._read = self._ids[self._read :], len(self._ids) - self._read
            self._waiting += new
            self._settle()
        return self.ended

    def close(self) -> str:
        """The whole text, when no more ids come."""
        if not self.ended and not self._cut(rest := self._waiting + self._unread()):
            self.text += rest
        self._ids, self._read, self._waiting = [], 0, ""
        return self.text

    def _unread(self) -> str:
        """The ids that are not read yet as text; the character at the end may lack bytes."""
        before = decoded(self._tokenizer, self._ids[: self._read])
        return decoded(self._tokenizer, self._ids)[len(before) :]

    def _cut(self, text: str) -> bool:
        """End before the stop string that is complete first, the longer one of two that end together."""
        found = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            self.text += text[: min(found)[1]]
            self.ended = True
        return self.ended

    def _settle(self) -> None:
        """Keep waiting only for the longest end of the text that begins a stop string."""
        lengths = (n for stop in self._stop for n in range(1, len(stop)) if self._waiting.endswith(stop[:n]))
        settled = len(self._waiting) - max(lengths, default=0)
        self.text, self._waiting = self.text + self._waiting[:settled], self._waiting[settled:]


def decoded(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int] | np.ndarray) -> str:
    """Text of ids without control tokens; bytes that form no character become U+FFFD."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


class LocalBackend:
    """A hybrid model that answers in this process."""

    def __init__(self, name: str) -> None:
        model, tokenizer = load_model(name)
        self.name, self.model, self.tokenizer = name, model, tokenizer
        self.spec = FrameSpec(count=model.config.video_frames)

    def stream(
        self, prompt: Prompt, max_tokens: int, temperature: float, seed: int, stop: Sequence[str] = ()
    ) -> Iterator[str]:
        """Pieces of text; a piece ends where its bytes form whole characters. The text ends before a stop string."""
        sampling = self._sampling(max_tokens, temperature, [seed])
        row, shown = TextUntil(self.tokenizer, stop), 0
        for step in stream(self.model, *self._inputs([prompt]), sampling):
            ended = row.push(int(step.ids_B[0]))
            if piece := row.text[shown:]:
                yield piece
                shown += len(piece)
            if ended:
                return
        if rest := row.close()[shown:]:
            yield rest

    def complete(
        self, prompts: Sequence[Prompt], max_tokens: int, temperature: float, seed: int, stop: Sequence[str] = ()
    ) -> list[Completion]:
        """One batch, left-padded; row i samples with seed + i.

        A text ends before the first stop string, its ids with the one that completed it; that is a "stop".
        """
        if not prompts:
            return []
        sampling = self._sampling(max_tokens, temperature, [seed + i for i in range(len(prompts))])
        texts = [TextUntil(self.tokenizer, stop) for _ in prompts]
        ends = (lambda row, token: texts[row].push(token)) if stop else None
        rows = generate(self.model, *self._inputs(prompts), sampling, stop=ends)
        return [
            Completion(
                text.close() if stop else decoded(self.tokenizer, r.ids_L), r.ids_L, r.logprobs_L, r.finish_reason
            )
            for text, r in zip(texts, rows, strict=True)
        ]

    def _sampling(self, max_tokens: int, temperature: float, seeds: list[int]) -> Sampling:
        return Sampling(
            temperature=temperature,
            max_new_tokens=max_tokens,
            eos_ids=(self.tokenizer.eos_token_id,),
            pad_id=self.tokenizer.pad_token_id,
            seeds=tuple(seeds),
        )

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
