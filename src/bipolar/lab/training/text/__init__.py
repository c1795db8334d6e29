"""Training of character-level language models, by the paper's recipe."""

from bipolar.lab.training.text.config import TextConfig, TextModel, TextRecipe
from bipolar.lab.training.text.runs import evaluate_text, load_model, train_text
from bipolar.lab.training.text.task import TextTask, text_task

__all__ = [
    "TextConfig",
    "TextModel",
    "TextRecipe",
    "TextTask",
    "evaluate_text",
    "load_model",
    "text_task",
    "train_text",
]
