"""Local models: names and folders that cannot be opened say so."""

import pytest

from cosmos_reason.backends.local import LocalBackend, model_folder
from cosmos_reason.errors import UserError


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(UserError, match=r"no model 'nan': wanted nano or a folder"):
        model_folder("nan")


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no config\.json"):
        LocalBackend(str(tmp_path))
