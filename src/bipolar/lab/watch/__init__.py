"""A live view of training runs, from the files that they write."""
