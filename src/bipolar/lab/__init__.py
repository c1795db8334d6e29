"""The laboratory that reproduces the paper. Needs ``pip install 'bipolar[lab]'``."""
