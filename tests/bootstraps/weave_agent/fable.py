import os
from functools import partial
from tools.editor import WeaveEditor
from weave import make_score_prompt_vllm
import bootstraps.tictactoe_server

TEMPLATE = "{response}\nThat was the whole fable.\n"
END = "\nDoes it end with a lesson? Answer yes or no: "

score_lesson = partial(make_score_prompt_vllm, TEMPLATE, END, "")
score_animals = make_simple_score_prompt("Do animals speak in this fable?")
questions = ["Is it short?", "Is it told plainly?"]


def read_fable(subagent):
    with open("fable.txt") as file:
        return file.read()


def check_lesson(subagent):
    [score] = simple_evaluate_outputs(score_lesson, read_fable(subagent))
    return score.item() > 0.01


def check_animals(subagent):
    scores = simple_evaluate_outputs([score_animals], [read_fable(subagent), "Nothing happened."])
    return [round(score.item(), 3) for score in scores]


def check_quality(subagent):
    score = simple_bayes_evaluate_outputs("Is this a good fable?", questions, [read_fable(subagent)])[0]
    return 0 <= score.item() <= 1


def action_begin_fable(subagent):
    main = agent.subagent("main", None, "Write a fable", {"done": "boolean"}, args.budget)
    main.task.add_evaluation("Has the fable a lesson?", check_lesson)
    main.task.add_evaluation("Do animals speak?", check_animals)
    main.task.add_evaluation("Is the fable good?", check_quality)
    editor = WeaveEditor(main, "fable.txt")
    editor.append("A heron asked a frog for the way.\nThe frog, who was no fool, asked for the fish first.\n")
    editor.edit(1, 1, "A heron asked an old frog for the way.")
    editor.unidiff_edit("@@ -2,1 +2,2 @@\n The frog, who was no fool, asked for the fish first.\n+The heron thought about it.\n")
    editor.start()
    editor.end()
    editor.up(1)
    editor.down(1)
    editor.goto(1)
    assert editor.find("heron") is not None, "Is the heron in the fable?"
    assert "editor-" + os.path.abspath("fable.txt") in main.tools, "Is the editor among the tools?"
    try:
        main.remove_observation_view(main.observation_views[0]["title"])
    except ValueError:
        refused = True
    assert refused, "Was an open tool's view kept?"
    scratch = WeaveEditor(main, "scratch.txt")
    scratch.append("to be cleared\n")
    scratch.clear()
    scratch.close()
    helper = agent.subagent(
        name="critic", parent="main", description="Criticise the fable", schema={"verdict": "string"}, time_budget=0.01
    )
    assert main.children == ["critic"], "Is the critic a child of main?"
    verdict = agent.run("critic")
    assert not helper.completed and not verdict, "Was there too little time for a verdict?"
    return open("fable.txt").read()


self.add_action("Begin the fable", action_begin_fable)
self.add_evaluation("Does the file exist?", check_lesson)
