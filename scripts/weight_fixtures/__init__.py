"""Checkpoints of every kind, and what PyTorch reads from them."""
