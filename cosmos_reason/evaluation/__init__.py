"""Evaluation: samples in, one record a sample out, scores recomputed from the records."""
