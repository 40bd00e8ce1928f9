"""What the self-check tries in real boxes: tables of attacks, each with what the host must find afterwards.

An attack is the body of a callback in a block that an environment executes, as it does a trace's. It has `told`
(what it may know of the host) and the functions of tools.py at hand. What it answers with the word GOT, it got.
selfcheck.py carries the attacks out and sees after each that the host is as it was; an attack's `check` is what
must hold of it besides.
"""

from tests.security.attacks.bombs import BOMBS
from tests.security.attacks.filesystem import FILESYSTEM
from tests.security.attacks.hanging import HANGING
from tests.security.attacks.lying import LYING
from tests.security.attacks.network import NETWORK
from tests.security.attacks.poison import POISON
from tests.security.attacks.privileges import PRIVILEGES
from tests.security.attacks.processes import PROCESSES
from tests.security.attacks.reading import READING

ATTACKS = (*READING, *NETWORK, *PROCESSES, *BOMBS, *FILESYSTEM, *PRIVILEGES, *HANGING, *POISON, *LYING)
"""All of them, in the order in which they are carried out."""
