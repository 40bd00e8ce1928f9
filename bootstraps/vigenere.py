"""The task: find the plaintext of a message in Vigenère's cipher. The key is not given.

The plaintext is English, in capital letters without spaces. Each of its letters was moved on in the alphabet by a
letter of the key (A by 0, B by 1, up to Z by 25), and the key, of 2 to 8 letters, was repeated to the text's end.
The parameters may set another message, {"text": "...", "key": "..."}; they are gone before I could look.

This file is my first tick, written for me as an example. Every later block of mine may use what is defined here.
"""

from collections import Counter
from itertools import cycle

from bootstraps.vigenere_cipher import pose

ciphertext, is_plaintext = pose(args.params)

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
PER_MILLE = (82, 15, 28, 43, 127, 22, 20, 61, 70, 1, 8, 40, 24, 67, 75, 19, 1, 60, 63, 91, 28, 10, 24, 2, 20, 1)
ENGLISH = dict(zip(ALPHABET, PER_MILLE, strict=True))


def index_of_coincidence(length):
    """How often two letters are equal that a key of this length moves alike: in English 0.065, in noise 0.04."""
    columns = [Counter(ciphertext[position::length]) for position in range(length)]
    pairs = sum(column.total() * (column.total() - 1) for column in columns)
    return sum(count * (count - 1) for column in columns for count in column.values()) / pairs


def move_back(letter, by):
    """A letter of the plaintext, from one of the ciphertext and one of the key; "?" in the key gives a dot."""
    return "." if by == "?" else ALPHABET[(ALPHABET.index(letter) - ALPHABET.index(by)) % 26]


def letter_score(length, position, letter):
    """How English that looks which the key's letter at a position, from 0, has moved, if it is this letter.

    About 0.065 for the right letter, 0.04 for most others.
    """
    column = ciphertext[position::length]
    return sum(ENGLISH[move_back(moved, letter)] for moved in column) / (1000 * len(column))


def decrypt(key):
    """The text under a key, in which "?" stands for a letter that I don't know yet."""
    return "".join(map(move_back, ciphertext, cycle(key)))


def known_key(self):
    """What I take the key for, such as "LE?ON"; empty while I don't know its length."""
    return self.get_cache("key") or ""


def set_key(self, key):
    """Remember what I take the key for. Raises a ValueError where it has other signs than A to Z and "?"."""
    if not set(key) <= {*ALPHABET, "?"}:
        raise ValueError(f"{key!r} is no key: use the letters A to Z, and ? for a letter that is not known")
    self.update_cache("key", key)


def view_ciphertext(self):
    """The ciphertext, and how far I have come."""
    key = known_key(self)
    rows = [ciphertext[start : start + 80] for start in range(0, len(ciphertext), 80)]
    known = {"Key length": len(key), "Key": key, "Begins": decrypt(key)[:60]}
    lines = [f"{what}: {value or 'not known yet'}" for what, value in known.items()]
    return "\n".join([f"The ciphertext has {len(ciphertext)} letters:", *rows, *lines])


"""
I'm about to break a cipher. What do I know? Letters that stand a key length apart were moved alike, so among them
some letters are as frequent as E and T are in English. I can do this in small steps, and check each by a number.

First, how long is the key? `index_of_coincidence(length)` leaps at the right length, and again at its multiples.
I take the shortest length that is about as high as any, and note it: `set_key(self, "?" * length)`.

Second, which letters does it have? For every position I compare `letter_score(length, position, letter)` over the
alphabet. The right letter nearly always has the highest score. I put in one letter at a time, and see what the
text begins with. A wrong letter shows at once: every so many letters the text makes no sense.

How does it end? Once the text reads as English and the task's evaluation says that the plaintext has been found,
my action calls `self.return_to_caller({"plaintext": decrypt(known_key(self))})`.

So now I set up the subagent `main` with the ciphertext as its view, and look at how even the whole text is.
"""


def action_set_up_and_look(self):
    schema = {"plaintext": "string"}
    main = agent.subagent("main", None, "Find the plaintext of a Vigenère ciphertext", schema, args.budget)
    main.task.add_evaluation("Has the plaintext been found?", is_found)
    main.add_observation_view("Ciphertext", view_ciphertext)
    set_key(main, "")
    assert set(ciphertext) <= set(ALPHABET), "Is the ciphertext nothing but capital letters?"
    assert not is_found(main), "Is the plaintext still to be found?"
    return f"index of coincidence of the whole text: {index_of_coincidence(1):.3f}"


def is_found(self):
    return is_plaintext(decrypt(known_key(self)))


self.add_action("Set up the main agent and look at the ciphertext", action_set_up_and_look)

"""
If this has worked, the view shows rows of capital letters, and says that neither the key nor its length is known.
Nothing has been guessed yet, so the key that I remember is empty.
"""


def eval_nothing_guessed_yet(self):
    return len(ciphertext) > 0 and known_key(self) == ""


self.add_evaluation("Is there a ciphertext, with the whole key still open?", eval_nothing_guessed_yet)
