"""Training of character-level language models, by the paper's recipe or a fast one."""

from typing import TYPE_CHECKING

from bipolar._tools.on_demand import on_demand

if TYPE_CHECKING:
    from bipolar.lab.training.text.config import TextConfig as TextConfig
    from bipolar.lab.training.text.config import TextModel as TextModel
    from bipolar.lab.training.text.config import TextRecipe as TextRecipe
    from bipolar.lab.training.text.dynamic import Dynamic as Dynamic
    from bipolar.lab.training.text.runs import evaluate_text as evaluate_text
    from bipolar.lab.training.text.runs import load_model as load_model
    from bipolar.lab.training.text.runs import train_text as train_text
    from bipolar.lab.training.text.task import TextTask as TextTask
    from bipolar.lab.training.text.task import text_task as text_task
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "config": ("TextConfig", "TextModel", "TextRecipe"),
            "dynamic": ("Dynamic",),
            "runs": ("evaluate_text", "load_model", "train_text"),
            "task": ("TextTask", "text_task"),
        },
    )
