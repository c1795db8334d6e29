"""``python -m torture``: all pieces, one after another, and a summary; or one trial again."""

from torture.command import main

if __name__ == "__main__":
    main()
