"""`python -m harness`: the command line."""

import importlib.util
import sys

try:
    from harness.cli import main

    sys.exit(main())
except ModuleNotFoundError as error:
    if importlib.util.find_spec("sacred"):
        raise
    sys.exit(
        f"error: {sys.executable} lacks the package {error.name!r}. `make setup` installs all packages into .venv: "
        "use .venv/bin/python, or `. .venv/bin/activate` first"
    )
