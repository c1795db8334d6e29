"""Training of residual networks on images, by the paper's recipe or a fast one."""

from typing import TYPE_CHECKING

from bipolar._tools.on_demand import on_demand

if TYPE_CHECKING:
    from bipolar.lab.training.images.config import ImageConfig as ImageConfig
    from bipolar.lab.training.images.config import ImageModel as ImageModel
    from bipolar.lab.training.images.runs import evaluate_images as evaluate_images
    from bipolar.lab.training.images.runs import train_images as train_images
    from bipolar.lab.training.images.search import found_in as found_in
    from bipolar.lab.training.images.task import ImageTask as ImageTask
    from bipolar.lab.training.images.task import image_task as image_task
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "config": ("ImageConfig", "ImageModel"),
            "runs": ("evaluate_images", "train_images"),
            "search": ("found_in",),
            "task": ("ImageTask", "image_task"),
        },
    )
