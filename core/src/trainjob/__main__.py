"""Entry point of `python -m trainjob`, for environments without the script `trainjob` on the path."""

from trainjob.cli import main

if __name__ == "__main__":
    main()
