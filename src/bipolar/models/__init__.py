"""Models of the paper, ready to take."""

from bipolar.models.char_rnn import CharRNN

__all__ = ["CharRNN"]
