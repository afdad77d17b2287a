"""``python -m farandole.runtime.snippet CODE``: run a few lines as a program, under the launcher."""

import sys

if __name__ == "__main__":
    exec(compile(sys.argv[1], "<snippet>", "exec"), {"__name__": "__main__"})
