"""Machinery of a reproduction: items, trials, executors, progress, cost, verdicts."""
