"""``farandole`` and ``python -m farandole``: the command line."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it in one line even while it is still being imported."""
    try:
        from farandole import cli
    except KeyboardInterrupt:
        print("farandole: interrupted; nothing has been started", file=sys.stderr)
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
