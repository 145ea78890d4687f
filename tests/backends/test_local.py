"""Local models: names and folders that cannot be opened say so."""

import numpy as np
import pytest

from cosmos_reason.backends.local import LocalBackend, model_folder
from cosmos_reason.errors import UserError
from cosmos_reason.text.chat import prompt_for
from cosmos_reason.types import Frames, Sample, VideoRef


@pytest.fixture(scope="module")
def nano():
    return LocalBackend("nano")


def asked(frames, question="Does the red ball move?"):
    """A prompt about that many noisy frames."""
    pixels = np.random.default_rng(frames).integers(0, 256, (frames, 64, 64, 3), dtype=np.uint8)
    seen = Frames(pixels, np.arange(frames) / 8, 8.0, frames, "drawn")
    return prompt_for(Sample("s", "binary", question, "yes", VideoRef("v")), seen)


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(UserError, match=r"no model 'nan': wanted nano, nano-base or a folder"):
        model_folder("nan")


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no config\.json"):
        LocalBackend(str(tmp_path))


def test_a_batch_of_unequal_prompts_is_answered_as_each_alone(nano):
    prompts = [asked(8), asked(3, "Is it?"), asked(8, "Does the yellow cylinder roll to the left of the blue box?")]
    together = nano.complete(prompts, 24, 0.0, 0)
    for prompt, completion in zip(prompts, together, strict=True):
        assert nano.complete([prompt], 24, 0.0, 0)[0].text == completion.text
        assert "".join(nano.stream(prompt, 24, 0.0, 0)) == completion.text
        assert len(completion.ids_L) == len(completion.logprobs_L) <= 24


def test_a_short_clip_is_shown_as_it_is_in_training(nano):
    ids, _, features = nano._inputs([asked(3)])
    assert features.shape[0] == nano.model.config.video_frames == 8
    assert (ids == nano.model.config.video_token_id).sum() == 8 * nano.model.tokens_per_frame
    assert all((features[i] == features[3]).all() for i in range(4, 8))  # the third frame again, and it stands still
