"""Videos with known truth: physics scenes and manipulation, their timelines, questions and sets on disk."""

from cosmos_reason.simulate import renderer as renderer  # before any module of this package imports MuJoCo
