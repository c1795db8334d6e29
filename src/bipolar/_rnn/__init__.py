"""The deep recurrent stack of the paper."""

from bipolar._rnn.stack import StackedRNN

__all__ = ["StackedRNN"]
