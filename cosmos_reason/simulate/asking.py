"""Writing questions: Asker collects the samples of one clip and draws their wording and the order of their options.

Draws depend on the clip's id and the template alone, never on the answer.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from cosmos_reason.types import LETTERS, Gold, Kind, Sample, Timeline, VideoRef

_CHOICE_OF = 4  # options at most


class Asker:
    """The samples of one clip, in the order in which they were asked."""

    def __init__(self, timeline: Timeline, video_path: str) -> None:
        self._timeline, self._video = timeline, VideoRef(video_path)
        self.samples: list[Sample] = []

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator of its own for each purpose, e.g. the name of a template."""
        return np.random.default_rng([zlib.crc32(self._timeline.clip_id.encode()), zlib.crc32(purpose.encode())])

    def yes_no(
        self, template: str, ontology: str, wordings: Sequence[str], holds: bool, think: str,
        seen: str = "", asked: str = "",
    ) -> None:  # fmt: skip
        """A binary question. Where two phrases decide it by agreeing or not, they end the thought."""
        think = f"{think} So: {seen}. Asked: {asked} {'yes' if holds else 'no'}" if asked else think
        self._add("binary", template, ontology, wordings, "yes" if holds else "no", think)

    def choose(
        self, template: str, ontology: str, wordings: Sequence[str], right: str, wrong: Sequence[str], think: str
    ) -> None:
        """One right option among two to four. `wrong` may hold `right` and more than fit: some are drawn."""
        rng = self.rng(template + "/options")
        others = [o for o in dict.fromkeys(wrong) if o != right]
        others = [others[i] for i in rng.permutation(len(others))[: _CHOICE_OF - 1]]
        options = [right, *others]
        options = [options[i] for i in rng.permutation(len(options))]
        self._add(
            "choice", template, ontology, wordings, LETTERS[options.index(right)],
            think, tuple(options),
        )  # fmt: skip

    def text(self, template: str, ontology: str, wordings: Sequence[str], answer: str, think: str) -> None:
        """A question with a short free answer."""
        self._add("text", template, ontology, wordings, answer, think)

    def number(self, template: str, ontology: str, wordings: Sequence[str], answer: float, think: str) -> None:
        """How many."""
        self._add("number", template, ontology, wordings, float(answer), think)

    def interval(self, template: str, wordings: Sequence[str], start_s: float, end_s: float, think: str) -> None:
        """When, in seconds."""
        span = (round(start_s, 2), round(end_s, 2))
        self._add("interval", template, "common_sense.time.order", wordings, span, think)

    def point(self, template: str, wordings: Sequence[str], xy: np.ndarray, think: str) -> None:
        """Where, in picture coordinates 0–1000."""
        spot = (float(round(float(xy[0]))), float(round(float(xy[1]))))
        self._add("point", template, "common_sense.space.relationship", wordings, spot, think)

    def _add(
        self, kind: Kind, template: str, ontology: str, wordings: Sequence[str], answer: Gold, think: str,
        options: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        wording = wordings[int(self.rng(template).integers(len(wordings)))]
        clip = self._timeline
        self.samples.append(
            Sample(
                f"{clip.clip_id}/{template}", kind, wording, answer, self._video, options=options, think=think,
                ontology=ontology, family=clip.family, template=template,
            )
        )  # fmt: skip
