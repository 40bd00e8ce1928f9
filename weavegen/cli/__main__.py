"""`python -m weavegen.cli`."""

from weavegen.cli import main

main()
