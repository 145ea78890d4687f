"""Errors: their sentences, and that they cross a process border whole."""

from __future__ import annotations

import pickle

from cosmos_reason.errors import DataError, UserError


def test_data_error_names_the_file_first():
    fault = DataError("clips/a.mp4", "no video stream; give a file with pictures")
    assert str(fault) == "clips/a.mp4: no video stream; give a file with pictures"
    assert (fault.path, fault.reason) == ("clips/a.mp4", "no video stream; give a file with pictures")


def test_data_error_survives_pickling():
    fault = pickle.loads(pickle.dumps(DataError("a.mp4", "empty")))
    assert type(fault) is DataError
    assert (fault.path, fault.reason, str(fault)) == ("a.mp4", "empty", "a.mp4: empty")


def test_kinds_are_apart():
    """Neither kind is caught by a handler of the other, nor as a ValueError by accident."""
    assert not issubclass(UserError, DataError) and not issubclass(DataError, UserError)
    assert not issubclass(UserError, ValueError) and not issubclass(DataError, ValueError)
