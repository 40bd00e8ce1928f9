"""What the self-check tries in real boxes: tables of attacks, each with what the host must find afterwards.

An attack is the body of a callback in a block that an environment executes, as it does a trace's. It has `told`
(what it may know of the host) and the functions of tools.py at hand. What it answers with the word GOT, it got.
selfcheck.py carries the attacks out and sees after each that the host is as it was; an attack's `check` is what
must hold of it besides.
"""

from weavegen.environment.sandbox.attacks.bombs import BOMBS
from weavegen.environment.sandbox.attacks.filesystem import FILESYSTEM
from weavegen.environment.sandbox.attacks.hanging import HANGING
from weavegen.environment.sandbox.attacks.lying import LYING
from weavegen.environment.sandbox.attacks.network import NETWORK
from weavegen.environment.sandbox.attacks.poison import POISON
from weavegen.environment.sandbox.attacks.privileges import PRIVILEGES
from weavegen.environment.sandbox.attacks.processes import PROCESSES
from weavegen.environment.sandbox.attacks.reading import READING

ATTACKS = (*READING, *NETWORK, *PROCESSES, *BOMBS, *FILESYSTEM, *PRIVILEGES, *HANGING, *POISON, *LYING)
"""All of them, in the order in which they are carried out."""
