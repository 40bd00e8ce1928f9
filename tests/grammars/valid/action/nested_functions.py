def action_sort(self):
    def key(item):
        def inner(x: int = 3, /, *rest, flag: bool = False, **more) -> int:
            return (x, *rest)[0]
        return inner(len(item), flag=True)

    class Box:
        """Holds one thing."""
        def __init__(self, thing): self.thing = thing

    words = sorted({"b", "aa", "c"}, key=key)
    assert words[-1] == "aa", "Is the longest word last?"
    return Box(words).thing
self.add_action("Sort by length", action_sort)
