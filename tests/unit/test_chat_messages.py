"""Messages of a trace in the form of the chat API, and back."""

import json

import pytest

from weavegen.agents.dialogue import BOX_TOOLS, Call, calls_in, response, tools_text
from weavegen.kernel import prompts
from weavegen.pool.chat_messages import Message, Said, messages_of, text_of, tools_of
from weavegen.trace.blocks import BlockType

SYSTEM: Said = (BlockType.SYSTEM, prompts.text("react").replace("{tools}", tools_text(BOX_TOOLS)))
USER: Said = (BlockType.USER, "Count the files.")
CALL = '<tool_call>{"name": "terminal", "arguments": {"command": "ls | wc -l"}}</tool_call>'
ANSWER = '<tool_response>{"success": true, "output": "12"}</tool_response>'


def plain(said: list[Said]) -> list[Message]:
    return messages_of(said, native=False)


def with_calls(said: list[Said]) -> list[Message]:
    return messages_of(said, native=True)


def roles(said: list[Said]) -> list[str]:
    return [message["role"] for message in with_calls(said)]


def test_the_tools_are_those_of_the_system_prompt() -> None:
    assert [tool["function"]["name"] for tool in tools_of([SYSTEM, USER])] == [tool.name for tool in BOX_TOOLS]
    assert tools_of([USER]) == []
    assert tools_of([(BlockType.SYSTEM, "<tools>\nnot JSON\n</tools>")]) == []


@pytest.mark.parametrize("name", ["react", "research_general", "research_literature", "toolsmith_execute"])
def test_every_prompt_with_tools_has_them_in_their_tags(name: str) -> None:
    text = prompts.text(name).replace("{tools}", tools_text(BOX_TOOLS))
    assert len(tools_of([(BlockType.SYSTEM, text)])) == len(BOX_TOOLS)


def test_calls_and_answers_are_the_apis_own() -> None:
    said = [SYSTEM, USER, (BlockType.ASSISTANT, f"<think>Look.</think>\n{CALL}"), (BlockType.TOOL, ANSWER)]
    _, _, asks, answers = with_calls(said)
    [call] = asks["tool_calls"]
    assert asks["content"] == "<think>Look.</think>"
    assert call["function"]["name"] == "terminal"
    assert json.loads(call["function"]["arguments"]) == {"command": "ls | wc -l"}
    said[2] = (BlockType.ASSISTANT, said[2][1].replace('"arguments"', '"parameters"'))
    assert with_calls(said)[2]["tool_calls"] == [call]
    assert answers == {"role": "tool", "tool_call_id": call["id"], "content": '{"success": true, "output": "12"}'}


def test_several_calls_have_an_answer_each() -> None:
    said = [USER, (BlockType.ASSISTANT, f"{CALL}\n{CALL}"), (BlockType.TOOL, f"{ANSWER}\n{ANSWER}")]
    assert roles(said) == ["user", "assistant", "tool", "tool"]
    ids = {call["id"] for call in with_calls(said)[1]["tool_calls"]}
    assert len(ids) == 2


def test_strict_templates_take_the_messages() -> None:
    """Those of Mistral and Gemma want the user and the assistant in turns, Mistral's also ids of nine characters."""
    warned, asks = (BlockType.USER, "Half of the context is used."), (BlockType.ASSISTANT, f"{CALL}\n{CALL}")
    said = [SYSTEM, USER, warned, asks, (BlockType.TOOL, f"{ANSWER}\n{ANSWER}"), warned, USER]
    system, user, calls, first, last = with_calls(said)
    assert [one["role"] for one in (system, user, calls, first, last)] == ["system", "user", "assistant", *["tool"] * 2]
    assert user["content"] == f"{USER[1]}\n\n{warned[1]}"
    assert first["content"] == '{"success": true, "output": "12"}'
    assert last["content"] == f"{first['content']}\n\n{warned[1]}\n\n{USER[1]}"
    assert all(len(call["id"]) == 9 and call["id"].isalnum() for call in calls["tool_calls"])
    assert [one["role"] for one in plain(said)] == ["system", "user", "assistant", "user"]


def test_a_call_that_the_api_would_refuse_stays_text() -> None:
    for broken in (
        "<tool_call>{</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
        "<tool_call>[1]</tool_call>",
        '<tool_call>{"name": "terminal", "arguments": "ls"}</tool_call>',
    ):
        said: list[Said] = [USER, (BlockType.ASSISTANT, broken), (BlockType.TOOL, ANSWER)]
        assert with_calls(said) == plain(said)


def test_calls_without_an_answer_stay_text() -> None:
    """The API refuses a conversation in which a call is not answered."""
    unanswered: list[Said] = [USER, (BlockType.ASSISTANT, CALL), USER]
    assert with_calls(unanswered) == plain(unanswered)
    last: list[Said] = [USER, (BlockType.ASSISTANT, CALL)]
    assert with_calls(last) == plain(last)
    fewer: list[Said] = [USER, (BlockType.ASSISTANT, f"{CALL}{CALL}"), (BlockType.TOOL, ANSWER)]
    assert with_calls(fewer) == plain(fewer)


def test_a_call_in_a_thought_is_no_call() -> None:
    said: list[Said] = [USER, (BlockType.ASSISTANT, f"<think>{CALL}</think>\nDone."), USER]
    assert with_calls(said) == plain(said)


def test_the_tags_of_thoughts_in_arguments_are_text() -> None:
    code = "re.sub(r'<think>.*?</think>', '', s).split('</think>')"
    call = json.dumps({"name": "python", "arguments": {"code": code}})
    text = f"I could write <tool_call>.</think>\nI write:\n<tool_call>{call}</tool_call>"
    [_, asks, _] = with_calls([USER, (BlockType.ASSISTANT, text), (BlockType.TOOL, ANSWER)])
    assert json.loads(asks["tool_calls"][0]["function"]["arguments"]) == {"code": code}
    assert asks["content"] == "<think>I could write <tool_call>.</think>\nI write:"


def test_thoughts_may_have_a_field_of_their_own() -> None:
    """Where there are none it is empty: with tool calls, DeepSeek's API wants the field anyway."""
    said = [USER, (BlockType.ASSISTANT, f"<think>Look. </think>\nSo.\n{CALL}"), (BlockType.TOOL, ANSWER)]
    said += [
        (BlockType.ASSISTANT, CALL),
        (BlockType.TOOL, ANSWER),
        (BlockType.ASSISTANT, "<think>Good.</think>\nDone."),
    ]
    for native in (True, False):
        told = [one for one in messages_of(said, native=native, reasoning="reasoning") if one["role"] == "assistant"]
        assert [one["reasoning"] for one in told] == ["Look.", "", "Good."]
        assert told[0]["content"] == ("So." if native else f"So.\n{CALL}")
        assert told[2]["content"] == "Done."


def test_an_argument_may_hold_the_end_of_a_tag() -> None:
    for arguments in ({"code": "s.split('</tool_call>')"}, {"code": "'</tool_response>' in s"}, {"code": ""}):
        for sent in (arguments, json.dumps(arguments)):
            text = text_of(None, None, [("python", sent)])
            assert calls_in(text, BOX_TOOLS) == [Call("python", arguments)]
        said = [USER, (BlockType.ASSISTANT, text), (BlockType.TOOL, response({"output": arguments["code"]}))]
        [_, asks, answers] = with_calls(said)
        assert json.loads(asks["tool_calls"][0]["function"]["arguments"]) == arguments
        assert json.loads(answers["content"])["output"] == arguments["code"]
    assert calls_in(text_of(None, None, [("terminal", None)]), BOX_TOOLS)[0].arguments == {}


def test_an_answer_of_the_api_becomes_text_that_the_agent_reads() -> None:
    text = text_of("I look.", "First the files.", [("terminal", '{"command": "ls"}'), ("python", "{broken")])
    assert text.startswith("<think>First the files.</think>\nI look.\n<tool_call>")
    first, second = calls_in(text, BOX_TOOLS)
    assert (first.name, first.arguments, first.error) == ("terminal", {"command": "ls"}, None)
    assert second.error is not None
    assert text_of(None, None, []) == ""
