"""Sign rules: constraints that a function or a module puts on the signs of its tensors."""
