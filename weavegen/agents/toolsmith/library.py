"""The tools of the stage `execute`: its own tools, and the tools of the library.

Models write the source of library tools. This module only parses the source; only a trace's box executes it.
"""

import ast
import contextlib
import json
import keyword
from functools import lru_cache
from typing import Any

import msgspec

from weavegen.agents.dialogue import BOX_TOOLS, RESEARCH, Tool, arguments_struct, declared_tool
from weavegen.kernel.steps import Value
from weavegen.linting.truncate import parse
from weavegen.python_parser import NO_PYTHON

TYPES: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}
"""Annotations that are checked. An argument with another annotation accepts any value."""
OWN_TOOLS = [declared_tool(name) for name in ("ask_user", "ask_model", "create_tool", "finish")]
RESERVED_NAMES = frozenset(tool.name for tool in (*BOX_TOOLS, RESEARCH, *OWN_TOOLS))
"""Names that no tool of the library may have."""
MAX_SOURCE_CHARS = 20_000


class Signature(Value, frozen=True, kw_only=True):
    """Name, signature and docstring of a function."""

    name: str
    line: str
    """`def name(...) -> ...`."""
    description: str
    """The docstring; may be empty."""

    @property
    def stub(self) -> str:
        """Source of the function with a body that raises NotImplementedError."""
        text = self.description.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        return f'{self.line}:\n    """{text}"""\n    raise NotImplementedError\n'


@lru_cache(maxsize=4096)  # every replay of a turn needs the tools again
def library_tool(name: str, line: str, description: str) -> Tool:
    """A tool of the library, which runs in the box. Raises ValueError if JSON can't hold its arguments."""
    try:
        tool = Tool(name, description, arguments_struct(name, fields_of(parse_signature(line))))
        tool.schema()
    except (TypeError, RecursionError) as error:  # an argument named like a struct's method; recursive types
        raise ValueError(f"{name}: its arguments can't be read from JSON: {error}") from None
    return tool


def signature_of(source: str, name: str | None = None) -> Signature:
    """The signature of function `name` in `source`. Without `name`, of the only function in `source`.

    Raises ValueError if there is not exactly one such function, or if it can't be a tool.
    """
    if len(source) > MAX_SOURCE_CHARS:
        raise ValueError(f"it has more than {MAX_SOURCE_CHARS:,} characters")
    try:
        statements = parse(source).body
    except NO_PYTHON as error:
        raise ValueError(f"this is not legal Python: {error}") from None
    functions = [node for node in statements if isinstance(node, ast.FunctionDef) and name in (None, node.name)]
    if len(functions) != 1:
        expected = "one function" if name is None else f"one function {name}"
        raise ValueError(f"there must be {expected}, and there are {len(functions)}")
    [function] = functions
    check_name(function.name)
    try:
        returns = f" -> {ast.unparse(function.returns)}" if function.returns is not None else ""
        line = f"def {function.name}({ast.unparse(function.args)}){returns}"
    except RecursionError as error:
        raise ValueError(f"this is not legal Python: {error}") from None
    description = (ast.get_docstring(function) or "").strip()
    library_tool(function.name, line, description)
    return Signature(name=function.name, line=line, description=description)


def check_name(name: str) -> None:
    """Raise ValueError if a tool or an argument can't have this name."""
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name) or name.startswith("_"):
        raise ValueError(f"{name!r:.80} can't be the name of a function or an argument")
    if len(name) > 80:
        raise ValueError(f"{name!r:.80} is too long a name")


def parse_signature(line: str) -> ast.FunctionDef:
    """The syntax tree of a signature. Raises ValueError."""
    function: ast.stmt | None = None
    with contextlib.suppress(*NO_PYTHON):
        [function] = parse(f"{line}: ...").body
    if not isinstance(function, ast.FunctionDef):
        raise ValueError(f"this is not a signature: {line!r:.200}")
    return function


def fields_of(function: ast.FunctionDef) -> list[Any]:
    """The arguments as fields for msgspec.defstruct. Raises ValueError."""
    arguments = function.args
    if arguments.posonlyargs or arguments.vararg or arguments.kwarg:
        raise ValueError(f"{function.name} must take its arguments by name: no *args, no **kwargs, no /")
    required: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
    defaults = [*required, *arguments.defaults, *arguments.kw_defaults]
    fields: list[Any] = []
    for argument, default in zip([*arguments.args, *arguments.kwonlyargs], defaults, strict=True):
        check_name(argument.arg)
        type = type_of(argument.annotation)
        fields.append((argument.arg, type) if default is None else (argument.arg, type, default_of(default)))
    return fields


def type_of(annotation: ast.expr | None) -> Any:
    """The type of an annotation; Any for a type that JSON does not have."""
    match annotation:
        case ast.Name(id=name):
            return TYPES.get(name, Any)
        case ast.Constant(value=None):
            return None
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            one, other = type_of(left), type_of(right)
            # Only `X | None`: msgspec can't tell the members of many other unions apart.
            return one | None if other is None and one is not None and one is not Any else Any
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            return list[type_of(inner)]  # type: ignore[misc]
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, inner])):
            return dict[str, type_of(inner)]  # type: ignore[misc]
    return Any


def default_of(default: ast.expr) -> Any:
    """A default for the schema. A call without the argument uses the function's own default."""
    try:
        value = ast.literal_eval(default)
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return msgspec.field(default_factory=lambda: value) if isinstance(value, list | dict) else value


def call_source(source: str, name: str, arguments: dict[str, Any]) -> str:
    """Python code that calls a tool in a module of its own, separate from the model's definitions."""
    return (
        "def library_tool():\n"
        "    import json, sys, types\n"
        "    module = sys.modules['library_tool'] = types.ModuleType('library_tool')  # dataclasses look here\n"
        f"    exec({source!r}, module.__dict__)\n"
        f"    return module.{name}(**json.loads({json.dumps(arguments)!r}))\n"
        "library_tool()"
    )
