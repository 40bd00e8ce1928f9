"""stub"""

from weavegen.sim.policies import judge
from weavegen.sim.policies.situation import Situation

log_odds = judge.log_odds


def knows(situation: Situation) -> bool:
    return False


def write(situation: Situation, seed: int, number: int) -> str:
    raise NotImplementedError
