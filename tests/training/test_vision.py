"""Read-outs and words: what should be said of each frame, the loss by hand, and training of both."""

import json
import math

import av
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cosmos_reason.errors import UserError
from cosmos_reason.model import sizes
from cosmos_reason.model.config import HybridConfig, HybridVLMConfig, VisionConfig
from cosmos_reason.simulate.dataset import sample_to_json, timeline_to_json, training_set
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.training.frames import FrameStore
from cosmos_reason.training.vision import (
    ClipStates,
    Readout,
    Slots,
    Truth,
    VisionRecipe,
    pretrain,
    readout_loss,
    slot_name,
    truth_of,
)
from cosmos_reason.types import ObjectTrack, Sample, Timeline, VideoRef


def track(name="red ball", colour="red", shape="ball", role="object", visible=(True, False, True)):
    boxes = np.array([[0, 0, 100, 100], [200, 0, 300, 100], [-100, 500, 1200, 700]], float)
    return ObjectTrack(name, colour, shape, role, np.zeros((3, 3)), np.zeros((3, 2)), boxes, np.array(visible))


def timeline(*tracks):
    return Timeline("c", "f", 0, 2.0, np.array([0.0, 0.5, 1.0]), tracks)


def test_truth_is_read_at_the_nearest_state():
    slots = Slots(("blue", "red"), ("ball", "box"))
    visible, box, shape = truth_of(timeline(track()), np.array([0.1, 0.9]), slots)
    assert visible.tolist() == [[0, 1], [0, 1]]
    assert box[:, 1].tolist() == [[0, 0, 0.1, 0.1], [0, 0.5, 1, 0.7]]  # clipped to the picture
    assert shape.tolist() == [[-1, 0], [-1, 0]]


def test_fixtures_are_slots_of_their_own():
    assert slot_name(track()) == "red"
    assert slot_name(track(role="occluder", shape="screen")) == "occluder:screen"


def test_rare_names_are_no_slots():
    many = [timeline(track())] * 20 + [timeline(track(colour="blue"))] * 3
    assert Slots.collect(many).names == ("red",)


def test_loss_by_hand():
    truth = Truth(
        torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0, 0.0, 0.5, 0.5], [0.0] * 4]]), torch.tensor([[1, -1]])
    )
    read = (torch.zeros(1, 2), torch.full((1, 2, 4), 0.25), torch.zeros(1, 2, 3))
    loss, metrics = readout_loss(read, truth)
    assert float(loss) == pytest.approx(4 * math.log(2) + 5 * 0.25 + 0.5 * math.log(3))
    assert metrics["box_error"] == pytest.approx(0.25)
    assert metrics["found"] == 0.0


def test_frames_without_objects_give_a_finite_loss():
    read = Readout(Slots(("red",), ("ball",)), 12, 4)(torch.randn(2, 4, 12))
    empty = Truth(torch.zeros(2, 1), torch.zeros(2, 1, 4), torch.full((2, 1), -1))
    loss, _ = readout_loss(read, empty)
    loss.backward()
    assert torch.isfinite(loss)


def tiny():
    text = HybridConfig(vocab_size=300, hidden_size=128, hybrid_override_pattern="M-", mamba_num_heads=2)
    vision = VisionConfig(
        image_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, stem_frames=2
    )
    return HybridVLMConfig(text_config=text, vision_config=vision, projector_size=32, video_frames=3)


def places(clip):
    """Every second clip runs backwards: where the square is does not tell which way it goes."""
    return range(3) if clip % 2 else range(2, -1, -1)


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Twenty clips of a red square that moves, and the recipe to learn from them."""
    monkeypatch.setitem(sizes.SIZES, "tiny", tiny)
    for name in ("videos", "timelines"):
        (tmp_path / "set" / name).mkdir(parents=True)
    rows = []
    for i in range(20):
        with av.open(str(tmp_path / "set" / "videos" / f"{i}.mp4"), "w") as container:
            stream = container.add_stream("libx264", rate=2)
            stream.width = stream.height = 16
            for t in places(i):
                picture = np.zeros((16, 16, 3), np.uint8)
                picture[4:8, 4 * t : 4 * t + 4, 0] = 255
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture)))
            container.mux(stream.encode(None))
        boxes = np.array([[250 * t, 250, 250 * t + 250, 500] for t in places(i)], float)
        ball = ObjectTrack(
            "red ball", "red", "ball", "object", np.zeros((3, 3)), boxes[:, :2] + 125, boxes, np.ones(3, bool)
        )
        (tmp_path / "set" / "timelines" / f"{i}.json").write_text(json.dumps(timeline_to_json(timeline(ball))))
        rows.append(Sample(f"{i}/q", "binary", "Is it?", "yes", VideoRef(f"videos/{i}.mp4"), family="f", template="t"))
    (tmp_path / "set" / "samples.jsonl").write_text("".join(json.dumps(sample_to_json(row)) + "\n" for row in rows))
    tokenizers.train([" red ball left middle right high centre goes left goes right"] * 3, 290, tmp_path / "tok")
    return VisionRecipe(
        train_sets=(tmp_path / "set",), out=tmp_path / "out", cache=tmp_path / "cache", size="tiny",
        tokenizer=tmp_path / "tok", steps=60, batch_frames=12, lr=0.01, warmup=2, log_every=1, save_every=3,
    )  # fmt: skip


def test_pretraining_learns_to_write_what_stands_where(recipe):
    pretrain(recipe)
    rows = [json.loads(line) for line in (recipe.out / "metrics.jsonl").read_text().splitlines()]
    held_out = [row["held_out_word_error"] for row in rows if "held_out_word_error" in row]
    assert held_out[0] > 1 and held_out[-1] < 0.05


def test_a_stopped_pretraining_ends_as_an_unbroken_one(recipe, tmp_path):
    whole = recipe.model_copy(update={"steps": 6, "out": tmp_path / "whole", "warmup": 100})
    parts = whole.model_copy(update={"steps": 3, "out": tmp_path / "parts"})
    pretrain(whole)
    pretrain(parts)
    pretrain(parts.model_copy(update={"steps": 6}))
    one, two = (load_file(out / "final" / "model.safetensors") for out in (whole.out, parts.out))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_single_frames_are_stacked_as_whole_clips_are(recipe):
    samples = training_set(recipe.train_sets[0])
    store = FrameStore.build(samples, recipe.cache, 3, 16)
    model = sizes.build("tiny")
    states = ClipStates(samples, store, tokenizers.load(recipe.tokenizer), model.config)
    whole = model.normalise(torch.from_numpy(store.pixels_NTHWC[states.rows]))
    assert torch.equal(states.batch(np.arange(60)).pixels_FCHW, whole)
    assert torch.equal(states.batch(np.array([59, 4])).pixels_FCHW, whole[[59, 4]])


def test_pretraining_without_timelines_is_refused(recipe, tmp_path):
    for path in (tmp_path / "set" / "timelines").iterdir():
        path.unlink()
    with pytest.raises(UserError, match="none of the clips has a timeline"):
        pretrain(recipe)


def test_a_size_that_does_not_see_is_refused(recipe):
    with pytest.raises(UserError, match="size: wanted one that sees, got nemotron-h-4b, a language model"):
        pretrain(recipe.model_copy(update={"size": "nemotron-h-4b", "out": recipe.out.parent / "other"}))
