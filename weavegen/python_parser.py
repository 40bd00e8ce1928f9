"""Python's parser, for threads and for any text."""

import ast
import threading
import warnings

NO_PYTHON = (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError)
"""What Python's parser and compiler raise."""

_one_at_a_time = threading.Lock()


def parse(source: str, flags: int = 0) -> ast.Module:
    """`ast.parse` without warnings, with flags of `compile`. Raises one of NO_PYTHON.

    Before Python 3.13 all threads share the parser's count of levels: if another thread parses meanwhile, it
    raises SystemError (github.com/python/cpython/issues/106905). They also share the filters of warnings.
    """
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree: ast.Module = compile(source, "<text>", "exec", ast.PyCF_ONLY_AST | flags, dont_inherit=True)
    return tree
