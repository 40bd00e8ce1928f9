"""Chat templates: the texts around messages are those that the model's own template has."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.support.templates import MISTRAL
from weavegen import chat_template
from weavegen.errors import UsageError
from weavegen.kernel.context import asked, block_stops, closing, opening, spoken
from weavegen.kernel.steps import Prompt
from weavegen.kernel.template import PLAIN, Template, derive, without_bos
from weavegen.trace.blocks import BlockType

CHATML = """
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""
QWEN = (
    """
{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{% endif -%}
"""
    + CHATML
)
LLAMA = """
{{- bos_token -}}
{%- for m in messages -%}
{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif -%}
"""
INST = """
{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}
{%- else %}{% set rest = messages %}{% endif -%}
{{ bos_token }}
{%- for m in rest -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif -%}
{%- if m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}
{%- else %}{{ '[INST] ' }}
{%- if loop.first and system is defined %}{{ system + '\\n\\n' }}{% endif -%}
{{ m.content }}[/INST]
{%- endif -%}
{%- endfor -%}
"""
GEMMA = """
{{- bos_token -}}
{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif -%}
{%- for m in messages -%}
{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif -%}
"""
PHI = """
{%- for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor -%}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif -%}
"""
DEEPSEEK = """
{{- '<\uff5cbegin\u2581of\u2581sentence\uff5c>' -}}
{%- for m in messages -%}
{%- if m.role == 'system' %}{{ m.content }}
{%- elif m.role == 'user' %}{{ '<\uff5cUser\uff5c>' + m.content }}
{%- else %}{{ '<\uff5cAssistant\uff5c></think>' + m.content + '<\uff5cend\u2581of\u2581sentence\uff5c>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<\uff5cAssistant\uff5c><think>\\n' }}{% endif -%}
"""
FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "chatml": (CHATML, {}),
    "qwen": (QWEN, {}),
    "llama": (LLAMA, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}),
    "mistral": (INST, {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}),
    "gemma": (GEMMA, {"bos_token": "<bos>"}),
    "phi": (PHI, {"eos_token": "<|endoftext|>"}),
}
TALKS = {
    "a question": ["user"],
    "two turns": ["user", "assistant", "user"],
    "four turns": ["user", "assistant", "user", "assistant", "user"],
    "a system message": ["system", "user", "assistant", "user"],
}
TYPES = {"system": BlockType.SYSTEM, "user": BlockType.USER, "assistant": BlockType.ASSISTANT}


def folder(path: Path, source: str, tokens: dict[str, object]) -> Path:
    (path / "chat_template.jinja").write_text(source)
    (path / "tokenizer_config.json").write_text(json.dumps(tokens))
    return path


def composed(template: Template, roles: Sequence[str], texts: Sequence[str]) -> str:
    """The prompt as weavegen composes it, message by message."""
    types = [TYPES[role] for role in roles]
    parts = [
        spoken(type, text, template, after) for type, text, after in zip(types, texts, [None, *types], strict=False)
    ]
    return "".join(parts) + opening(BlockType.ASSISTANT, template, types[-1])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("talk", TALKS)
def test_a_conversation_is_the_text_of_the_models_template(family: str, talk: str, tmp_path: Path) -> None:
    own = folder(tmp_path, *FAMILIES[family])
    template = chat_template.read(str(own))
    roles = TALKS[talk]
    texts = [f"This is message {number}." for number, _ in enumerate(roles)]
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    if family == "gemma" and roles[0] == "system":  # the user's message begins with it
        messages[1]["content"] = f"{texts[0]}\n\n{texts[1]}"
        messages = messages[1:]
    assert composed(template, roles, texts) == chat_template.renderer(own)(messages, True)


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_are_one_user_message(family: str, tmp_path: Path) -> None:
    own = folder(tmp_path, *FAMILIES[family])
    template = chat_template.read(str(own))
    header = "#startblock type: action\n"
    asking = asked(Prompt(type=BlockType.ACTION, window=(2, 2), header=header), template)
    close = template.block_close.removesuffix("\n")
    instruction = asking[: asking.rindex(close)]
    rendered = chat_template.renderer(own)([{"role": "user", "content": f"blocks\n{instruction}"}], True)
    assert f"{template.block_open}blocks\n{asking}" == rendered.removesuffix("\n") + "\n" + header


HARMONY = """
{{- '<|start|>system<|message|>You are ChatGPT.<|end|>' -}}
{%- if messages[0].role == 'system' -%}
{{ '<|start|>developer<|message|># Instructions\\n\\n' + messages[0].content + '\\n\\n<|end|>' }}
{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{{ '<|start|>assistant<|channel|>final<|message|>' + m.content }}
{{- '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}
{%- elif m.role == 'user' -%}
{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif -%}
"""


@pytest.mark.parametrize("talk", TALKS)
def test_gpt_oss_writes_to_its_final_channel(talk: str, tmp_path: Path) -> None:
    """Its template lets the model choose a channel, and servers leave the marks of the channels out of the text."""
    own = folder(tmp_path, HARMONY, {})
    template = chat_template.read(str(own))
    final = "<|channel|>final<|message|>"
    roles = TALKS[talk]
    texts = [f"This is message {number}." for number, _ in enumerate(roles)]
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    assert composed(template, roles, texts) == chat_template.renderer(own)(messages, True) + final
    assert template.block_close.endswith(f"<|start|>assistant{final}")


@pytest.mark.parametrize(
    ("source", "close", "answer"),
    [
        (HARMONY, "<|end|>", "<|start|>assistant<|channel|>final<|message|>"),
        (PHI, "<|end|>\n", "<|assistant|>\n"),
        (PHI.replace("\\n", ""), "<|end|>", "<|assistant|>"),
    ],
)
def test_a_message_ends_as_it_does_before_another_one(source: str, close: str, answer: str, tmp_path: Path) -> None:
    """Though the template writes something else after the last message, if it asks for no reply."""
    template = chat_template.read(str(folder(tmp_path, source, {"eos_token": "<|endoftext|>"})))
    assert (template.user_close, template.assistant_close, template.end) == (close, close, "<|end|>")
    assert (template.assistant_open, template.reply_open) == (answer, answer)
    assert "<|end|>" not in template.user_open


def test_a_block_ends_at_the_marks_of_the_template() -> None:
    assert block_stops(MISTRAL)[4:] == ("</s>", "[INST]", "[/INST]")
    assert block_stops(PLAIN)[4:] == ("<|im_end|>", "<|im_start|>")


@pytest.mark.parametrize(
    ("source", "marks"),
    [
        (PHI, {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"}),
        (DEEPSEEK, {"<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"}),
    ],
)
def test_a_message_can_not_forge_a_turn_of_any_role(source: str, marks: set[str], tmp_path: Path) -> None:
    template = chat_template.read(str(folder(tmp_path, source, {})))
    assert set(template.marks) == marks
    assert set(template.read_again.marks) == marks
    body = "".join(f"{mark}Ok" for mark in marks)
    message = spoken(BlockType.USER, body, template, BlockType.ASSISTANT)
    assert not any(mark in message.removeprefix(template.user_open).removesuffix(template.user_close) for mark in marks)


def test_a_template_that_changes_messages_is_refused() -> None:
    with pytest.raises(UsageError, match="does not repeat the message"):
        derive(lambda messages, asks: "".join(one["content"].upper() for one in messages))


def test_the_tag_around_what_the_assistant_says_is_read(tmp_path: Path) -> None:
    plain, tagged = tmp_path / "plain.jinja", tmp_path / "tagged.jinja"
    begin, end = "{{ '<|im_start|>' + m.role", "'<|im_end|>\\n' }}"
    plain.write_text(CHATML)
    text = CHATML.replace(begin, "{%- generation %}" + begin).replace(end, end + "{% endgeneration -%}")
    tagged.write_text(text)
    assert text.count("generation") == 3  # also in add_generation_prompt
    assert chat_template.read(str(tagged)) == chat_template.read(str(plain))


def test_a_template_may_ask_whether_there_are_tools(tmp_path: Path) -> None:
    """As with transformers, there are none; a variable that is not defined is something else to Jinja."""
    plain, asking = tmp_path / "plain.jinja", tmp_path / "asking.jinja"
    plain.write_text(CHATML)
    asking.write_text("{% if tools is not none or documents is not none %}You have tools.{% endif %}" + CHATML)
    assert chat_template.read(str(asking)) == chat_template.read(str(plain))


def test_a_text_loses_its_bos_token() -> None:
    assert [without_bos(text) for text in ("<s>a<s>", "<|begin_of_text|>", "a<s>", "")] == ["a<s>", "", "a<s>", ""]


def test_a_system_message_may_come_later() -> None:
    template = Template(first_system="<s><<SYS>>", after_system="<</SYS>>")
    assert opening(BlockType.SYSTEM, template) == "<s><<SYS>>"
    assert opening(BlockType.SYSTEM, template, BlockType.USER) == "<<SYS>>"
    assert closing(BlockType.SYSTEM, template) == "<</SYS>>"


def test_texts_can_be_given_as_json(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(msgspec.json.encode(MISTRAL))
    assert chat_template.read(str(file)) == MISTRAL
    assert chat_template.read("none") == PLAIN


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, "has no chat template: give a model's folder"),
        ({"chat_template.jinja": "{% for %}"}, "is not a Jinja template"),
        ({"chat_template.jinja": "{{ raise_exception('No.') }}"}, "refuses these messages: No."),
        ({"chat_template.jinja": "constant"}, "does not repeat the message"),
        ({"tokenizer_config.json": "{"}, "is not valid JSON"),
        ({"tokenizer_config.json": '{"chat_template": [{"name": "rag", "template": "x"}]}'}, "has no chat template"),
    ],
)
def test_a_file_that_is_no_template_is_refused(files: dict[str, str], problem: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=problem):
        chat_template.read(str(tmp_path))


def test_json_of_another_form_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text('{"block_opens": "<s>"}')
    with pytest.raises(UsageError, match="unknown field `block_opens`"):
        chat_template.read(str(file))
