"""The ``bipolar`` command with one more item, ``tiny``: ``python -m tests.helpers.command_with_tiny``."""

if __name__ == "__main__":
    from bipolar.lab.paper import ITEMS
    from tests.helpers.items import tiny

    ITEMS["tiny"] = tiny(steps=200)

    from bipolar.lab.cli import main  # whose options list the items

    main()
