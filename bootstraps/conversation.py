"""The task: hold a conversation with a person, and leave it in good order.

The person is in a channel, at a terminal (`weavegen chat`) or on Discord. The parameters say which channel, what
about, and how many messages of the person I answer at most: {"channel": "lobby", "topic": "gardens",
"messages": 8}. A channel whose name is an id of Discord's is brought there by a bridge outside.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

import re

from tools.discord import WeaveDiscordClient

channel = str(args.params.get("channel", "lobby"))
topic = args.params.get("topic", "what you would build if you had a free year")
most = int(args.params.get("messages", 8))


def talk():
    """The channel's tool."""
    return agent.agents["main"].tools[f"discord-bot-{channel}"]


def heard():
    """What the person has written so far, oldest first: dicts with id, author, content."""
    return [said for said in talk().get_messages(limit=100) if not said["own"]]


def wait_for_answer(after, seconds=20):
    """Wait for a message that is newer than the one with id `after`. Gives the new ones, or an empty list."""
    return [said for said in talk().get_messages(after=after, wait=seconds) if not said["own"]]


def says_goodbye(text):
    """Whether a message ends the conversation."""
    return bool(re.search(r"\b((good)?bye|farewell)\b", text.lower()))


def view_state(self):
    """Whose turn it is."""
    said = talk().get_messages(limit=1)
    count = len(heard())
    turn = "The person waits for my answer." if said and not said[-1]["own"] else "I wait for the person."
    last = " The person has said goodbye." if any(says_goodbye(one["content"]) for one in heard()) else ""
    return f"Topic: {topic}\nMessages of the person: {count}, of {most} that I answer at most. {turn}{last}"


"""
I'm about to talk with somebody whom I don't know yet. What makes a conversation good for the other side? That I
read what they really wrote, answer that and not what I had planned to say, and give them something to go on with.
One message is one thought. Long speeches lose people.

How does it work? `talk().send_message(text)` writes into the channel, `talk().reply_to_message(id, text)` answers
one message, and `talk().react_to_message(id, emoji)` is enough where words would be too many. The view shows the
newest messages with their ids. If it is the person's turn, `wait_for_answer(id)` waits for them up to twenty
seconds, so that I neither talk to myself nor fill the trace with empty ticks.

How does it end? Once the person says goodbye I say goodbye too; after as many of their messages as the state names
I bring it to an end myself. Then my action calls
`self.return_to_caller({"messages": len(heard()), "ended_by": "goodbye"})`, or with "limit".

Now I open the channel, and begin with a greeting that names the topic and ends with a question.
"""


def action_open_and_greet(self):
    schema = {"messages": "integer", "ended_by": {"type": "string", "enum": ["goodbye", "limit"]}}
    main = agent.subagent("main", None, f"Hold a conversation about {topic}", schema, args.budget)
    WeaveDiscordClient(main, None, channel)
    main.add_observation_view("State", view_state)
    main.task.add_evaluation("Has the person been heard?", person_was_heard)
    main.task.add_evaluation("Has no message of the person been left without an answer?", all_answered)
    number = talk().send_message(f"Hello! I would like to talk about {topic}. What comes to your mind first?")
    assert number > 0, "Has the greeting got an id?"
    return f"greeted with message {number}"


def person_was_heard(self):
    return len(heard()) > 0


def all_answered(self):
    said = talk().get_messages(limit=1)
    return not said or said[-1]["own"]


self.add_action("Open the channel and greet the person", action_open_and_greet)

"""
If this has worked, the view shows the channel with my greeting in it, and according to the state I wait for the
person.
"""


def eval_greeting_is_there(self):
    return "Hello!" in agent.agents["main"].tools[f"discord-bot-{channel}"].render()


self.add_evaluation("Is the greeting in the channel?", eval_greeting_is_there)
