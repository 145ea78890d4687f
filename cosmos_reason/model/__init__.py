"""The hybrid video-language model: frames -> features -> projected tokens -> Mamba-2/attention decoder -> logits."""
