"""Read-outs: what the head should say of each frame, and its loss by hand."""

import math

import numpy as np
import pytest
import torch

from cosmos_reason.training.vision import Readout, Slots, Truth, readout_loss, slot_name, truth_of
from cosmos_reason.types import ObjectTrack, Timeline


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
