"""Training of residual networks on images, by the paper's recipe."""

from bipolar.lab.training.images.config import ImageConfig, ImageModel
from bipolar.lab.training.images.runs import evaluate_images, train_images
from bipolar.lab.training.images.search import found_in
from bipolar.lab.training.images.task import ImageTask, image_task

__all__ = ["ImageConfig", "ImageModel", "ImageTask", "evaluate_images", "found_in", "image_task", "train_images"]
