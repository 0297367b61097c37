"""Measure what checkpoints and recoveries cost a PyTorch FSDP training run."""

__version__ = "0.1.0"
