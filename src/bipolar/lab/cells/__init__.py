"""The rivals: the networks of Tables 2 and 4, one file each, on one protocol."""
