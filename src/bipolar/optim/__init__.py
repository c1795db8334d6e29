"""Optimisers, pinned weights and clipping, which keep a network without norms on its way."""

from bipolar.optim._clip import clip_by_unit_
from bipolar.optim._muon import Muon
from bipolar.optim._pin import Pin, PinRow, pin
from bipolar.optim._recommended import recommended
from bipolar.optim._roles import groups

__all__ = ["Muon", "Pin", "PinRow", "clip_by_unit_", "groups", "pin", "recommended"]
