"""The task: read a text and answer questions about it, as many as I can.

Text and present question are shown; the answers are not, their hashes only serve to check mine. There is one
attempt at each question. Which text it is and how many questions are drawn, by dice that are seeded with the
trace, is set by the parameters, such as {"text": "rock_pool", "questions": 6}.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

from bootstraps import texts
from bootstraps.params import read_params

text_name, most_questions = read_params(args.params, text=("rock_pool", texts.names()), questions=(6, range(1, 11)))
pages = texts.pages(text_name)
drawn = sorted(random.sample(range(len(texts.questions(text_name))), most_questions))
questions = [texts.questions(text_name)[number] for number in drawn]


def answers(self):
    """My answers so far: dicts with question, answer and right."""
    return self.get_cache("answers")


def question(self):
    """The present question; None when all have been answered."""
    return questions[len(answers(self))] if len(answers(self)) < len(questions) else None


def turn_to(self, page):
    """Show a page of the text, counted from 1."""
    if page not in range(1, len(pages) + 1):
        raise ValueError(f"there is no page {page!r}: the text has pages 1 to {len(pages)}")
    self.update_cache("page", page)
    self.update_cache("searched", sorted({page, *self.get_cache("searched")}))


def answer(self, word):
    """Answer the present question, for good, with one word of the text. Gives whether it was right."""
    asked = question(self)
    if asked is None:
        raise ValueError("all questions have been answered: return to the caller")
    if len(word.split()) != 1:
        raise ValueError(f"{word!r} is no single word: answer with one word of the text")
    right = texts.is_right(text_name, asked, word)
    self.update_cache("answers", [*answers(self), {"question": asked, "answer": word, "right": right}])
    self.update_cache("searched", [self.get_cache("page")])
    return right


def count_right(self):
    return sum(given["right"] for given in answers(self))


def view_reading(self):
    """The page that I am at, and the present question."""
    page, asked, count = self.get_cache("page"), question(self), len(answers(self))
    score = f"Answered: {count} of {len(questions)}, right: {count_right(self)}"
    if asked is None:
        return f"All questions have been answered.\n{score}"
    head = f'Page {page} of {len(pages)} of "{texts.title(text_name)}":'
    searched = f"Pages searched for it: {', '.join(map(str, self.get_cache('searched')))}"
    return f"{head}\n\n{pages[page - 1]}\n\nQuestion {count + 1}: {asked}\n{searched}\n{score}"


"""
I'm about to answer questions. What do I know? I see one page of the text and one question. The questions come in
the order in which the text answers them, so the page that I am at, or a later one, has what I look for. An answer
is one word, as it stands in the text: `answer(self, "nine")` and not `answer(self, "9")`. It counts at once.

How do I find it? I look for the sentence that shares the question's words, and take from it the word that the
question asks for: a number for how many, a colour for what colour, a name for who. Where no sentence of the page
fits, I don't guess, but go on: `turn_to(self, page + 1)`. The view says which pages I have searched.

How does it end? When all questions have been answered, my action calls
`self.return_to_caller({"right": count_right(self), "questions": len(questions)})`. A wrong answer is no failure of
the task; not to report it would be.

So now I set up the subagent `main` with its view and open the text at page 1.
"""


def action_set_up_and_open(self):
    schema = {"right": "integer", "questions": "integer"}
    main = agent.subagent("main", None, f'Answer questions about "{texts.title(text_name)}"', schema, args.budget)
    main.task.add_evaluation("Have all questions been answered?", is_done)
    main.task.add_evaluation("Is every answer so far right?", is_all_right)
    main.update_cache("answers", [])
    main.update_cache("searched", [])
    turn_to(main, 1)
    main.add_observation_view("Reading", view_reading)
    assert question(main) == questions[0], "Is the first question the present one?"
    return f"{len(pages)} pages, {len(questions)} questions"


def is_done(self):
    return question(self) is None


def is_all_right(self):
    return count_right(self) == len(answers(self))


self.add_action("Set up the main agent and open the text", action_set_up_and_open)

"""
If this has worked, the view shows page 1 and below it the first question, with nothing answered.
"""


def eval_first_question_is_shown(self):
    return "Page 1 of" in view_reading(self) and questions[0] in view_reading(self)


self.add_evaluation("Does the view show page 1 and the first question?", eval_first_question_is_shown)
