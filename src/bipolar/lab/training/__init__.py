"""Training: one loop, with checkpoints, resuming, a guard against divergence, and progress."""
