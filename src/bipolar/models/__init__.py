"""Models of the paper, and one for small budgets."""

from bipolar.models._char_rnn import CharRNN
from bipolar.models._conv_net import ConvNet
from bipolar.models._load import load
from bipolar.models._oriented import ORAlign, ORConv2d, ORPool
from bipolar.models._oriented_response_net import OrientedResponseNet
from bipolar.models._wide_resnet import WideResNet

__all__ = ["CharRNN", "ConvNet", "ORAlign", "ORConv2d", "ORPool", "OrientedResponseNet", "WideResNet", "load"]
