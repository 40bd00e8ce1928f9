"""The command line: a module for each group of commands. Wrong use: one line on standard error, exit code 2."""

import importlib
import pkgutil
import sys

__all__ = ["main"]

# Importing a module registers its commands. --help lists them in the order of the modules' names.
try:
    from weavegen.cli.app import main

    for module in pkgutil.iter_modules(__path__):
        if module.name != "__main__":
            importlib.import_module(f"{__name__}.{module.name}")
except KeyboardInterrupt:  # before `main` can catch it
    sys.exit(130)
