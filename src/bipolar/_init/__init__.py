"""Initialisation: LSUV for any model and for the recurrent stack, and mirrored weights."""
