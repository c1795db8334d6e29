"""The laboratory: what reproduces the paper. Needs ``pip install 'bipolar[lab]'``."""
