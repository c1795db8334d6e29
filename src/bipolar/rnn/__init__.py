"""The deep recurrent stack of the paper."""

from bipolar.rnn.stack import StackedRNN

__all__ = ["StackedRNN"]
