"""`python -m trainjob`: the command, where its script is not on the path."""

from trainjob.cli import main

if __name__ == "__main__":
    main()
