"""The tools of an execution: its own, those of the box, and those of the library, whose source is only read here.

What models wrote is executed in a trace's box and nowhere else, so nothing is imported: signatures are parsed.
"""

import ast
import json
import keyword
from functools import lru_cache
from typing import Any

import msgspec

from weavegen.agents.dialogue import Tool
from weavegen.box import calls
from weavegen.kernel.steps import Value
from weavegen.linting.truncate import NO_PYTHON, parse

TYPES: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}
"""What an argument can be declared as; anything else is taken as it comes."""


def ask_user(question: str) -> str:
    """Ask the user who made the request, wait for the answer as long as it takes, and return it."""
    raise NotImplementedError


def ask_model(question: str) -> str:
    """Have a language model answer: a step that needs judgement or language and that no code can do."""
    raise NotImplementedError


def create_tool(name: str, description: str, done: str) -> str:
    """Have a function made. `description`: what it takes and returns; `done`: all that you have found out."""
    raise NotImplementedError


def finish(success: bool, result: str) -> str:
    """End the work. `result` is what the user reads: the answer itself, or what is missing and why."""
    raise NotImplementedError


IN_BOX = [Tool(function) for function in calls.FUNCTIONS.values()]
OWN = [Tool(function) for function in (ask_user, ask_model, create_tool, finish)]
LONGEST = 20_000
"""Characters of a tool's source."""
TAKEN = frozenset(tool.name for tool in (*IN_BOX, *OWN))
"""Names that no tool of the library may have."""


class Signature(Value, frozen=True, kw_only=True):
    """A function of the library, or one to be made."""

    name: str
    line: str
    """`def name(...) -> ...`."""
    description: str
    """Its docstring; "": it has none."""

    @property
    def stub(self) -> str:
        """Source of the function without its code."""
        text = self.description.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        return f'{self.line}:\n    """{text}"""\n    raise NotImplementedError\n'


class LibraryTool(Tool):
    """One that is called with JSON and executed in the box."""

    def __init__(self, signature: Signature) -> None:
        """Raises ValueError."""
        self.name, self.description = signature.name, signature.description
        try:
            fields = fields_of(parsed(signature.line))
            self._arguments = msgspec.defstruct(self.name, fields, forbid_unknown_fields=True, kw_only=True)
            self.schema()
        except (TypeError, RecursionError) as error:  # names that are a struct's own, types without end
            raise ValueError(f"{self.name}: its arguments can't be read from JSON: {error}") from None


@lru_cache(maxsize=4096)  # every replay of a turn needs them again
def library_tool(name: str, line: str, description: str) -> LibraryTool:
    """A tool of the library by its signature. Raises ValueError."""
    return LibraryTool(Signature(name=name, line=line, description=description))


def signature_of(source: str, name: str | None = None) -> Signature:
    """The signature of a function that `source` defines: of the one with this name, else of the only one.

    Raises ValueError.
    """
    if len(source) > LONGEST:
        raise ValueError(f"it has more than {LONGEST:,} characters")
    try:
        found = _read(source, name)
    except ValueError:
        raise
    except NO_PYTHON as error:
        raise ValueError(f"this is not legal Python: {error}") from None
    library_tool(found.name, found.line, found.description)
    return found


def _read(source: str, name: str | None) -> Signature:
    functions = [
        one for one in parse(source).body if isinstance(one, ast.FunctionDef) and name in (None, one.name)
    ]
    if len(functions) != 1:
        wanted = "one function" if name is None else f"one function {name}"
        raise ValueError(f"there must be {wanted}, and there are {len(functions)}")
    function = functions[0]
    check_name(function.name)
    description = (ast.get_docstring(function) or "").strip()
    returns = f" -> {ast.unparse(function.returns)}" if function.returns is not None else ""
    line = f"def {function.name}({ast.unparse(function.args)}){returns}"
    return Signature(name=function.name, line=line, description=description)


def check_name(name: str) -> None:
    """Raise ValueError where a tool, or an argument of one, can't have this name."""
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name) or name.startswith("_"):
        raise ValueError(f"{name!r:.80} can't be the name of a function or an argument")
    if len(name) > 80:
        raise ValueError(f"{name!r:.80} is too long a name")


def parsed(line: str) -> ast.FunctionDef:
    """A signature as a syntax tree. Raises ValueError."""
    try:
        [function] = parse(f"{line}: ...").body
    except NO_PYTHON:
        raise ValueError(f"this is no signature: {line!r:.200}") from None
    if not isinstance(function, ast.FunctionDef):
        raise ValueError(f"this is no signature: {line!r:.200}")
    return function


def fields_of(function: ast.FunctionDef) -> list[Any]:
    """Its arguments, as msgspec.defstruct takes them. Raises ValueError."""
    given = function.args
    if given.posonlyargs or given.vararg or given.kwarg:
        raise ValueError(f"{function.name} must take its arguments by name: no *args, no **kwargs, no /")
    absent: list[ast.expr | None] = [None] * (len(given.args) - len(given.defaults))
    defaults = [*absent, *given.defaults, *given.kw_defaults]
    fields: list[Any] = []
    for argument, default in zip([*given.args, *given.kwonlyargs], defaults, strict=True):
        check_name(argument.arg)
        type = type_of(argument.annotation)
        fields.append((argument.arg, type) if default is None else (argument.arg, type, default_of(default)))
    return fields


def type_of(annotation: ast.expr | None) -> Any:
    """The type that a JSON value must have for an argument; Any where we do not know."""
    if isinstance(annotation, ast.Name):
        return TYPES.get(annotation.id, Any)
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return None
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        either = type_of(annotation.left), type_of(annotation.right)
        plain = {one for one in either if one is not None}
        # Unions of containers of different kinds are more than msgspec tells apart.
        return either[0] | None if either[1] is None and plain and Any not in plain else Any
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        inner = annotation.slice
        if annotation.value.id == "list":
            return list[type_of(inner)]  # type: ignore[misc]
        if annotation.value.id == "dict" and isinstance(inner, ast.Tuple) and len(inner.elts) == 2:
            return dict[str, type_of(inner.elts[1])]  # type: ignore[misc]
    return Any


def default_of(default: ast.expr) -> Any:
    """A default as the model reads it. The function's own holds where an argument is not given."""
    try:
        value = ast.literal_eval(default)
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    if isinstance(value, list | dict):
        return msgspec.field(default_factory=lambda: value)
    return value


def call_source(source: str, name: str, arguments: dict[str, Any]) -> str:
    """Python that calls a tool in a namespace of its own: what the model defined meanwhile can't be in its way."""
    return (
        "import json\n"
        "library_tool = {'__name__': 'library_tool'}\n"
        f"exec({source!r}, library_tool)\n"
        f"library_tool[{name!r}](**json.loads({json.dumps(arguments)!r}))"
    )
