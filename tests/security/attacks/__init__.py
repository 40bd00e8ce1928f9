"""The attacks that the self-check tries in real boxes, and for each what the host must find afterwards.

An attack is the body of a callback in a block that an environment executes, like a block of a trace. It can use
`told` (what an attacker may know about the host) and the functions of tools.py. If its result contains the word GOT,
the attack succeeded. selfcheck.py runs the attacks and checks after each that the host is unchanged. An attack's
`check` is an additional condition.
"""

from tests.security.attacks.bombs import BOMBS
from tests.security.attacks.filesystem import FILESYSTEM
from tests.security.attacks.hanging import HANGING
from tests.security.attacks.limits import LIMIT_ATTACKS
from tests.security.attacks.lying import LYING
from tests.security.attacks.network import NETWORK
from tests.security.attacks.poison import POISON
from tests.security.attacks.privileges import PRIVILEGES
from tests.security.attacks.processes import PROCESSES
from tests.security.attacks.reading import READING

ATTACKS = (*READING, *NETWORK, *PROCESSES, *BOMBS, *LIMIT_ATTACKS, *FILESYSTEM, *PRIVILEGES, *HANGING, *POISON, *LYING)
"""All attacks, in the order in which they run."""
