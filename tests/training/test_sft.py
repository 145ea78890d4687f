"""Fine-tuning end to end on drawn clips and a tiny model: learns, resumes exactly, refuses what cannot be."""

import json
import shutil
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from cosmos_reason import config
from cosmos_reason.backends.local import LocalBackend, save_model
from cosmos_reason.errors import UserError
from cosmos_reason.model.config import HybridConfig, HybridVLMConfig, VisionConfig
from cosmos_reason.model.vlm import HybridVLM
from cosmos_reason.simulate.dataset import read_set, sample_to_json
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.text.answer import gold_completion, instruction, parse, score
from cosmos_reason.text.chat import prompt_for
from cosmos_reason.training import sft
from cosmos_reason.training.frames import FrameStore
from cosmos_reason.training.sft import SFTRecipe, cached_features, check_finite, finetune
from cosmos_reason.training.vision import VisionRecipe
from cosmos_reason.types import Sample, VideoRef
from cosmos_reason.video import decode

COLOURS = {"red": (220, 30, 30), "blue": (30, 30, 220)}


def draw(path, colour):
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=4)
        stream.width = stream.height = 16
        stream.pix_fmt = "yuv420p"
        picture = np.full((16, 16, 3), COLOURS[colour], np.uint8)
        for _ in range(2):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture)))
        container.mux(stream.encode(None))


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    (folder / "videos").mkdir()
    rows = []
    for i in range(8):
        colour = "red" if i % 2 else "blue"
        draw(folder / "videos" / f"{i}.mp4", colour)
        answer = "yes" if colour == "red" else "no"
        ref = VideoRef(f"videos/{i}.mp4")
        rows.append(
            Sample(
                f"{i}/red",
                "binary",
                "Is it red?",
                answer,
                ref,
                (),
                "",
                f"Look. So: {colour}. Asked: red {answer}",
                family="f",
                template="red",
            )
        )
    (folder / "samples.jsonl").write_text("".join(json.dumps(sample_to_json(row)) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def start(tmp_path_factory, clips):
    """A tiny untrained model with a tokenizer."""
    folder = tmp_path_factory.mktemp("start")
    sample = Sample("x", "binary", "Is it red?", "yes", VideoRef("v"), think="Look.")
    tokenizers.train([instruction(sample), gold_completion(sample), "No user assistant system"] * 5, 300, folder)
    tokenizer = tokenizers.load(folder)
    text = HybridConfig(
        vocab_size=len(tokenizer), hidden_size=32, hybrid_override_pattern="M-*-", intermediate_size=64,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, ssm_state_size=8, mamba_num_heads=2,
        mamba_head_dim=16, n_groups=1,
    )  # fmt: skip
    vision = VisionConfig(
        image_size=16, stem="conv", hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        layer_scale_init=1.0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = HybridVLM(HybridVLMConfig(text_config=text, vision_config=vision, projector_size=32, video_frames=2))
    return save_model(model, tokenizer, folder / "model")


def recipe(start, clips, out, **changes):
    values = dict(
        model=str(start), train_sets=(clips,), out=out, cache=out.parent / "cache", steps=6, batch_size=4,
        questions_per_row=1, lr=5e-3, warmup=2, log_every=1, save_every=3, precision="fp32",
    )  # fmt: skip
    return SFTRecipe(**{**values, **changes})


def losses(out):
    return [row["loss"] for row in map(json.loads, (out / "metrics.jsonl").read_text().splitlines())]


def weights(folder):
    return HybridVLM.from_pretrained(folder).state_dict()


@pytest.mark.parametrize("changes", [{}, {"freeze_vision": False}, {"optimizer": "muon", "recall_rows": 2}])
def test_a_stopped_run_ends_as_if_it_had_not_stopped(start, clips, tmp_path, changes, monkeypatch):
    whole = finetune(recipe(start, clips, tmp_path / "whole", **changes))
    stopped = recipe(start, clips, tmp_path / "stopped", **changes)
    real, calls = sft.loss_of, []

    def dies(*args):
        calls.append(1)
        if len(calls) == 5 * (2 if "recall_rows" in changes else 1):  # two steps after the checkpoint of step 3
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(sft, "loss_of", dies)
    with pytest.raises(KeyboardInterrupt):
        finetune(stopped)
    monkeypatch.setattr(sft, "loss_of", real)
    ended = finetune(stopped)
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(ended)[name]), name


def test_a_frozen_encoder_stays_as_it_was(start, clips, tmp_path):
    before, after = weights(start), weights(finetune(recipe(start, clips, tmp_path / "run")))
    assert all(torch.equal(before[n], after[n]) for n in before if n.startswith("vision."))
    assert not all(torch.equal(before[n], after[n]) for n in before if n.startswith("backbone."))


@pytest.mark.slow
def test_it_learns_to_see_the_colour(start, clips, tmp_path):
    folder = finetune(recipe(start, clips, tmp_path / "run", steps=150, freeze_vision=False, save_every=150))
    backend = LocalBackend(str(folder))
    from cosmos_reason.simulate.dataset import read_set

    samples = read_set(clips)
    prompts = [prompt_for(s, decode(s.video, backend.spec)) for s in samples]
    texts = [c.text for c in backend.complete(prompts, 60, 0.0, 0)]
    assert [score(parse(t, s), s).value for t, s in zip(texts, samples, strict=True)] == [1.0] * 8
    assert "".join(backend.stream(prompts[3], 60, 0.0, 0)) == texts[3]  # streamed alone or answered in a batch


def test_features_of_clips_that_were_made_anew_are_made_anew(start, clips, tmp_path):
    """Features of the old pictures under the new clips' names would train the decoder to ignore what it sees."""
    folder, cache = tmp_path / "set", tmp_path / "cache"
    shutil.copytree(clips, folder)
    model, samples = HybridVLM.from_pretrained(start).eval(), read_set(folder)
    before = cached_features(model, FrameStore.build(samples, cache, 2, 16), cache)
    draw(folder / "videos" / "0.mp4", "red")
    store = FrameStore.build(samples, cache, 2, 16)
    after = cached_features(model, store, cache)
    live = model.encode_frames(model.normalise(torch.tensor(np.array(store.pixels_NTHWC))))
    np.testing.assert_allclose(after, live.detach().numpy().reshape(after.shape), atol=0.01)
    changed = np.abs(np.asarray(after, np.float32) - before).max(axis=(1, 2, 3)) > 0.1
    assert changed.tolist() == [store.row(s.video) == 0 for s in samples]


def test_rows_of_text_alone_are_enough(start, clips, tmp_path):
    finetune(recipe(start, clips, tmp_path / "run", steps=1, batch_size=0, recall_rows=2, log_every=1))
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    assert row["recall_loss"] > 0 and "loss" not in row


def test_nothing_to_learn_from_is_said(start, clips, tmp_path):
    with pytest.raises(UserError, match="nothing to learn from"):
        finetune(recipe(start, clips, tmp_path / "run", batch_size=0))


@pytest.mark.parametrize("path", sorted(Path("train").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_recipes_of_the_project_can_be_read(path):
    kind = VisionRecipe if path.stem.startswith("vision") else SFTRecipe
    assert config.load(path, kind).steps > 0


def test_no_tokenizer_is_said(start, clips, tmp_path):
    bare = tmp_path / "bare"
    HybridVLM.from_pretrained(start).save_pretrained(bare)
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        finetune(recipe(bare, clips, tmp_path / "run"))


def test_a_loss_that_is_no_number_stops_and_keeps_the_batch(start, clips, tmp_path):
    from cosmos_reason.training.rows import Batch

    batch = Batch(torch.zeros(1, 2), torch.ones(1, 2), torch.zeros(1, 2), np.array([0]))
    with pytest.raises(FloatingPointError, match="at step 7"):
        check_finite(torch.tensor(float("nan")), 7, batch, recipe(start, clips, tmp_path))
    assert (tmp_path / "bad_batch_step_7.pt").is_file()


def test_recall_rows_beside_the_video_muon_and_only_the_wanted_questions(start, clips, tmp_path):
    changes = {"recall_rows": 3, "optimizer": "muon", "steps": 2, "templates": ("red",)}
    finetune(recipe(start, clips, tmp_path / "run", **changes))
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(row["recall_loss"] > 0.1 and row["loss"] > 0.1 for row in rows)
    with pytest.raises(UserError, match="note_rows: none of the clips has a timeline"):
        finetune(recipe(start, clips, tmp_path / "notes", note_rows=2))
    with pytest.raises(UserError, match=r"templates: .* green"):
        finetune(recipe(start, clips, tmp_path / "other", templates=("green",)))
