"""The error that the command line prints as one sentence."""


class UsageError(Exception):
    """A flag, a file or a directory that the lab cannot work with; the message names it and says what to do."""
