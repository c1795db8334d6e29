"""Activations: the catalogue, modules, kernels, sign patterns, moments and gains."""
