"""What the bootstraps share: reading their parameters, with an error that names the wrong one."""

from collections.abc import Mapping, Sequence
from typing import Any


def read_params(given: Mapping[str, Any], **known: tuple[Any, Sequence[Any]]) -> list[Any]:
    """The values of all `known` parameters, in their order: each is a default and the values that are allowed.

    read_params(args.params, words=(400, range(100, 4001)), text=("ferry", ["ferry", "rock_pool"]))

    Raises ValueError where a parameter is not known or has a value that is not allowed.
    """
    if strange := sorted(set(given) - set(known)):
        raise ValueError(f"there is no parameter {strange[0]!r}: give {', '.join(known)}")
    values = []
    for name, (default, allowed) in known.items():
        value = given.get(name, default)
        if type(value) is not type(default) or value not in allowed:
            numbers = isinstance(allowed, range)
            choice = f"{allowed[0]} to {allowed[-1]}" if numbers else " or ".join(allowed)
            raise ValueError(f"{name} is {value!r}: give {choice}")
        values.append(value)
    return values
