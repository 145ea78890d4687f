"""Whose failure it is: the caller's (`UserError`), the data's (`DataError`), or ours (anything else, with traceback).

The command line prints the first two as one sentence and exits with 2; everything else is a bug and stays loud.
"""


class UserError(Exception):
    """The caller asked for something that cannot be: one sentence with what was wanted, what was got and what to do."""


class DataError(Exception):
    """A file or a model's output is faulty. Example: ``clips/a.mp4: no video stream; give a file with pictures``."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = str(path)
        self.reason = reason

    def __reduce__(self) -> tuple[type["DataError"], tuple[str, str]]:
        """Pickle by both arguments, so that a decoder process can hand the error to its caller."""
        return DataError, (self.path, self.reason)
