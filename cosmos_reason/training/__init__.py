"""Training: encoder read-outs, then supervised fine-tuning, on accelerate."""
