"""Functions by which a callback asks the model. In the box this is the module `weave`."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from weavegen.box.awaitable import awaitable
from weavegen.box.plain import clean, plain

ScorePrompt = Callable[[str], str]
"""Turns a text into a prompt whose next word is the model's yes or no."""

IN_SCOPE = (
    "simple_evaluate_outputs",
    "simple_bayes_evaluate_outputs",
    "make_simple_score_prompt",
    "make_simple_bayes_score_prompt",
    "generate_outputs_vllm",
)
"""Functions that blocks use without an import."""
EXAMPLES = """\
# A few questions whose right probabilities are known, to calibrate the answers:
#q: A fair coin was thrown. Did it come up heads? No. (50%)
#q: A ticket wins once in a hundred draws. Did this one win? Yes. (1%)
#q: A die was rolled. Does it show a six? No. (83.3%)
#q: Does the word "yes" have three letters? Yes. (99.9%)
# The answer to the next question is yes or no, and nothing else.
"""


class Score(float):
    """A probability. `.item()` is for programs that expect an element of a tensor."""

    def item(self) -> float:
        return float(self)


def request(kind: str, body: dict[str, Any]) -> Any:
    """Have the worker answer a request of box/wire.py. The runner replaces this function.

    Raises RuntimeError if the model can't be asked, ValueError if there is too much text or a channel refuses.
    """
    raise RuntimeError("the model and channels can only be reached while a callback runs")


def ask(prompts: list[str]) -> list[tuple[float, float]]:
    """Return the model's probabilities of yes and of no after each prompt."""
    values = request("ask", {"prompts": [clean(str(prompt), 2**20) for prompt in prompts]})
    return [(float(yes), float(no)) for yes, no in values]


def chat(body: dict[str, Any]) -> Any:
    """Send a message to a channel, or read its messages, for tools."""
    return request("chat", plain(body))


def make_score_prompt_vllm(template: str, suffix: str, prompt: str, response: str) -> str:
    """Fill {prompt} and {response} of a template. `response` begins with the prompt, which is removed from it."""
    return template.format(prompt=prompt, response=response[len(prompt) :]) + suffix


def make_bayes_score_prompt_vllm(template: str, suffix: str, prompt: str, parent_q: str, response: str) -> str:
    """Like `make_score_prompt_vllm`; also fill {parent_q} with the parent question and its assumed answer."""
    return template.format(parent_q=parent_q, prompt=prompt, response=response[len(prompt) :]) + suffix


def escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def make_simple_score_prompt(question: str) -> ScorePrompt:
    """Make the prompt function of a question about a text."""
    return partial(make_score_prompt_vllm, "{response}\n" + EXAMPLES + f"#q: {escape(question)} ", "", "")


def make_simple_bayes_score_prompt(question: str) -> Callable[[str, str], str]:
    """Make the prompt function of a question about a text, given the answer to a parent question."""
    template = "{response}\n" + EXAMPLES + f"#q: {{parent_q}}\n#q: {escape(question)} "
    return partial(make_bayes_score_prompt_vllm, template, "", "")


def log_odds(answer: Sequence[float]) -> float:
    yes, no = (max(float(mass), 1e-12) for mass in answer)
    return math.log(yes) - math.log(no)


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0


@awaitable
def simple_evaluate_outputs(
    score_prompt_fns: ScorePrompt | Sequence[ScorePrompt], texts: str | Sequence[str]
) -> list[Score]:
    """Return P(yes) for every text. For several questions: from the mean of their log odds."""
    functions = [score_prompt_fns] if callable(score_prompt_fns) else list(score_prompt_fns)
    texts = [texts] if isinstance(texts, str) else list(texts)
    answers = ask([function(text) for text in texts for function in functions])
    rows = [answers[i : i + len(functions)] for i in range(0, len(answers), max(len(functions), 1))]
    return [Score(sigmoid(sum(map(log_odds, row)) / len(row))) for row in rows]


@awaitable
def simple_bayes_evaluate_outputs(parent_q: str, questions: Sequence[str], texts: str | Sequence[str]) -> list[Score]:
    """Return P(parent question answered yes) for every text, by Bayes' rule from the answers to `questions`.

    `questions` are treated as independent given the parent question's answer.
    """
    texts = [texts] if isinstance(texts, str) else list(texts)
    parent = make_simple_score_prompt(parent_q)
    likelihoods = [make_simple_bayes_score_prompt(question) for question in questions]
    prompts = []
    for text in texts:
        prompts.append(parent(text))
        prompts += [f(f"{parent_q} {answer}.", text) for answer in ("Yes", "No") for f in likelihoods]
    odds = [log_odds(answer) for answer in ask(prompts)]
    results, width, n = [], 1 + 2 * len(questions), len(questions)
    for row in (odds[i : i + width] for i in range(0, len(odds), width)):
        yes, no = sigmoid(row[0]), sigmoid(-row[0])
        for given_yes, given_no in zip(row[1 : 1 + n], row[1 + n :], strict=True):
            yes, no = yes * sigmoid(given_yes), no * sigmoid(given_no)
        results.append(Score(yes / (yes + no) if yes + no else 0.5))
    return results


@awaitable
def generate_outputs_vllm(
    model_name: str,
    text: str,
    n_tokens: int,
    n: int = 1,
    port: int | None = None,
    stop: str | Sequence[str] | None = None,
    temperature: float = 1.0,
) -> list[str]:
    """Return `n` texts of at most `n_tokens` tokens with which the job's model continues `text`.

    A text ends before the first of the `stop` strings. `model_name` and `port` are not used. Raises ValueError.
    """
    text, ends = clean(str(text), 2**23), [clean(str(end)) for end in ([stop] if isinstance(stop, str) else stop or ())]
    bounds = [("n", n, 1, 64), ("n_tokens", n_tokens, 1, 8_192), ("temperature", temperature, 0, 100)]
    bounds += [("len(text)", len(text), 0, 2**20), ("the number of stop strings", len(ends), 0, 16)]
    for name, given, least, most in [*bounds, *(("the length of a stop string", len(end), 1, 1_000) for end in ends)]:
        if not least <= given <= most:
            raise ValueError(f"{name} is {given}: give {least:,} to {most:,}")
    asked = {"prompt": text, "n": int(n), "max_tokens": int(n_tokens), "temperature": float(temperature), "stop": ends}
    return [str(found) for found in request("complete", asked)]
