"""The probe, with its diagnosis and its plot."""
