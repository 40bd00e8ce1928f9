"""Chat templates of model folders: Jinja, as Hugging Face's tokenizers have them."""

import datetime
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment

from weavegen.errors import UsageError, required
from weavegen.kernel.template import PLAIN, Message, Render, Template, derive

CONFIG = "tokenizer_config.json"
FILE = "chat_template.jinja"
GENERATION = re.compile(r"({%[-+]?\s*)(end)?generation(\s*[-+]?%})")
"""A tag of transformers around what the assistant says."""
GIVE = "give a model's folder, its chat_template.jinja, a JSON file with texts, or none"


def read(place: str) -> Template:
    """The template of `none`, a model's folder, a Jinja file or a JSON file of texts. Raises UsageError."""
    if place == "none":
        return PLAIN
    path = Path(place)
    try:
        if path.suffix == ".json" and path.name != CONFIG and path.is_file():
            return msgspec.json.decode(path.read_bytes(), type=Template)
        return derive(renderer(path if path.is_dir() else path.parent, path if path.is_file() else None))
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"--template {place}: {error}: {GIVE}") from None
    except UsageError as error:
        raise UsageError(f"--template {place}: {error}") from None


def renderer(folder: Path, file: Path | None = None, day: datetime.date | None = None) -> Render:
    """A function that applies the template of a model's folder. Raises UsageError.

    `file`: the template, if it is not that of the folder. The folder's tokenizer_config.json names the special tokens.
    `day`: the date for templates that write one; None: today's.
    """
    config = config_of(folder)
    file = folder / FILE if file is None or file.name == CONFIG else file
    found = file.read_text() if file.is_file() else _default(config.get("chat_template"))
    source = required(found, f"{folder} has no chat template: {GIVE}")
    tokens = {name: _text(config.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    jinja.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    jinja.globals["strftime_now"] = lambda format: (day or datetime.datetime.now()).strftime(format)
    jinja.globals["raise_exception"] = _refuse
    try:
        # Jinja does not know these tags: they become an `if` that is always true.
        source = GENERATION.sub(lambda tag: f"{tag[1]}{'endif' if tag[2] else 'if true'}{tag[3]}", source)
        template = jinja.from_string(source)
    except jinja2.TemplateError as error:
        raise UsageError(f"{file} is not a Jinja template: {error}") from None

    def render(messages: Sequence[Message], asks: bool) -> str:
        try:
            return template.render(messages=messages, tools=None, documents=None, add_generation_prompt=asks, **tokens)
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise UsageError(f"the chat template refuses these messages: {error}") from None

    return render


def config_of(folder: Path) -> dict[str, Any]:
    """What a model's folder says about its tokenizer; {} if it says nothing. Raises UsageError."""
    path = folder / CONFIG
    try:
        value = json.loads(path.read_text()) if path.is_file() else {}
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from None
    return value if isinstance(value, dict) else {}


def _default(template: Any) -> str | None:
    """The default of a tokenizer's templates: one text, or a list of named ones."""
    if isinstance(template, list):
        template = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}.get("default")
    return template if isinstance(template, str) else None


def _text(token: Any) -> str:
    """The text of a special token, which may be an object with options; "" if there is none."""
    return str(token.get("content", "")) if isinstance(token, dict) else token or ""


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)
