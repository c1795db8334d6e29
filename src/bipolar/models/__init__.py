"""Models of the paper, ready to take."""

from bipolar.models.char_rnn import CharRNN
from bipolar.models.oriented import ORAlign, ORConv2d, ORPool
from bipolar.models.oriented_response_net import OrientedResponseNet
from bipolar.models.wide_resnet import WideResNet

__all__ = ["CharRNN", "ORAlign", "ORConv2d", "ORPool", "OrientedResponseNet", "WideResNet"]
