"""Installations with workers, as the acceptance tests have them."""

from tests.acceptance.conftest import installation, own_installation

__all__ = ["installation", "own_installation"]
