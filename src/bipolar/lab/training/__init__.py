"""One training loop, with what a long run needs: checkpoints, resuming, a guard against divergence, progress."""
