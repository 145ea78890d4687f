"""The interface of everything that answers: prompts in, completions out, one at a time as text or many at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from cosmos_reason.types import Completion, Prompt
from cosmos_reason.video import FrameSpec


class Backend(Protocol):
    """Who answers. `spec` is the frame selection that the model was trained with."""

    name: str
    spec: FrameSpec

    def stream(self, prompt: Prompt, max_tokens: int, temperature: float, seed: int) -> Iterator[str]:
        """Pieces of the completion's text as they are made."""
        ...

    def complete(self, prompts: Sequence[Prompt], max_tokens: int, temperature: float, seed: int) -> list[Completion]:
        """One completion a prompt, in order."""
        ...
