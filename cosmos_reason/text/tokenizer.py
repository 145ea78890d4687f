"""The vocabulary: corpus -> byte-level BPE -> a Hugging Face fast tokenizer folder with a chat template.

Ids in this order: control tokens, think and answer tags, the 256 bytes, learned merges. Digits are always single and a
line break is always a token of its own, so text after a line break is encoded the same whatever stands before it.
Any text survives: what no merge covers is written in bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from cosmos_reason.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, TURN_START, TURN_END = "<|pad|>", "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
VIDEO_PAD, IMAGE_PAD = "<|video_pad|>", "<|image_pad|>"
CONTROL_TOKENS = (PAD, TURN_START, TURN_END, VISION_START, VISION_END, VIDEO_PAD, IMAGE_PAD)
TAGS = ("<think>", "</think>", "<answer>", "</answer>")  # ordinary text that is one token each

# Words and punctuation with the space before them; single digits; single line breaks; other runs of white space.
_PIECES = r"(?i:'(?:s|t|re|ve|m|ll|d))| ?\p{L}+|\p{N}|\n| ?[^\s\p{L}\p{N}]+|[^\S\n]+(?!\S)|[^\S\n]+"

# The same turns as chat.py writes for a conversation without pictures; a video or an image is one placeholder, which
# chat.py multiplies by frames and tokens. Text that looks like a control token is made plain by chat.py only.
CHAT_TEMPLATE = """\
{%- macro written(content) -%}
  {%- if content is string -%}{{- content -}}{%- else -%}
    {%- for part in content -%}
      {%- if part['type'] == 'video' -%}{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
      {%- elif part['type'] == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
      {%- else -%}{{- part['text'] -}}{%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
  {{- '<|im_start|>' + message['role'] + '\\n' -}}
  {%- if message['role'] == 'assistant' -%}
    {%- generation -%}{{- written(message['content']) + '<|im_end|>' -}}{%- endgeneration -%}
  {%- else -%}{{- written(message['content']) + '<|im_end|>' -}}{%- endif -%}
  {{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def train(corpus: Iterable[str], vocab_size: int, folder: Path) -> None:
    """Learn a vocabulary of at most `vocab_size` tokens, control tokens included, and save it as a tokenizer folder.

    The same corpus gives the same files. A small corpus may yield fewer tokens. UserError when `vocab_size` leaves no
    room for the bytes.
    """
    smallest = len(CONTROL_TOKENS) + len(TAGS) + 256
    if vocab_size < smallest:
        raise UserError(f"vocab_size {vocab_size} is less than the {smallest} control tokens and bytes; raise it")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[*CONTROL_TOKENS, *TAGS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_without_tags(corpus), trainer)
    _save(_with_plain_tags(tokenizer), folder)


def load(folder: Path | str) -> PreTrainedTokenizerFast:
    """The tokenizer of a folder that `train` wrote, or of any model folder with a fast tokenizer."""
    from transformers import PreTrainedTokenizerFast  # takes seconds to import

    if not (Path(folder) / "tokenizer.json").is_file():
        raise UserError(f"{folder}: wanted a tokenizer, but there is no tokenizer.json; give the folder of a model")
    return PreTrainedTokenizerFast.from_pretrained(folder)


def _without_tags(corpus: Iterable[str]) -> Iterator[str]:
    """The corpus without tags and control tokens: they are tokens already and shall not spend merges."""
    fixed = re.compile("|".join(re.escape(token) for token in (*CONTROL_TOKENS, *TAGS)))
    for text in corpus:
        yield from fixed.split(text)


def _with_plain_tags(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer, with the tags as tokens that are not special: decoding keeps them in the text."""
    state = json.loads(tokenizer.to_str())
    for token in state["added_tokens"]:
        token["special"] = token["content"] not in TAGS
    return Tokenizer.from_str(json.dumps(state))


def _save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the folder in the form that `AutoTokenizer` reads."""
    from transformers import PreTrainedTokenizerFast  # takes seconds to import

    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=PAD,
        extra_special_tokens=[TURN_START, VISION_START, VISION_END, VIDEO_PAD, IMAGE_PAD],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
