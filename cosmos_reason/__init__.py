"""cosmos_reason: physical-AI video reasoning, from videos to a trained, measured and served model."""

__version__ = "0.1.0"
