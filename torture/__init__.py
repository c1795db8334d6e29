"""Torture: crashes, broken files, random calls and random models, until something gives; ``make torture``."""
