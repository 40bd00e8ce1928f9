"""The town of the zombie game: its places, the things there, and their uses."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Place:
    """One place of the town."""

    text: str
    exits: tuple[str, ...]
    zombies: int = 0
    loot: tuple[str, ...] = field(default=())


TOWN = {
    "flat": Place("Your flat above the bakery. The stairs creak.", ("square",), 0, ("cloth", "bottle")),
    "square": Place(
        "The market square. Stalls lie where the crowd left them.",
        ("flat", "pharmacy", "school", "police", "bridge"),
        3,
        ("food", "scrap"),
    ),
    "pharmacy": Place(
        "The pharmacy, its shutter half down.", ("square", "school"), 2, ("bandage", "bandage", "bottle")
    ),
    "school": Place(
        "The school. Drawings flutter on the walls.", ("square", "pharmacy", "park"), 3, ("food", "cloth", "bottle")
    ),
    "police": Place(
        "The police station. Someone emptied the racks in a hurry.",
        ("square", "petrol"),
        2,
        ("key", "shotgun", "shells", "shells"),
    ),
    "petrol": Place("The petrol station at the ring road.", ("police", "bridge"), 2, ("fuel", "bottle", "scrap")),
    "park": Place(
        "The park. The pond has no ducks any more.", ("school", "hardware", "bridge"), 1, ("scrap", "bottle")
    ),
    "hardware": Place(
        "The hardware store, dark and full of shelves.", ("park", "farm"), 2, ("axe", "scrap", "scrap", "cloth")
    ),
    "farm": Place("A farm on the slope.", ("hardware", "hill"), 1, ("food", "food", "cloth")),
    "bridge": Place("The bridge over the weir, choked with cars.", ("square", "petrol", "park", "hill"), 2, ("scrap",)),
    "hill": Place("The hill road. The tower is behind a locked gate.", ("bridge", "farm", "tower"), 1),
    "tower": Place("The radio tower. The generator is dry, the fuse box open.", ("hill",), 1, ("scrap",)),
}
FUSE = ("school", "hardware", "farm")
"""One of these has the fuse."""

WEIGHT = {"axe": 2, "shotgun": 3, "fuel": 4, "key": 0, "knife": 0}
"""Weights of things that do not weigh 1."""
CAPACITY = 12
START = {"knife": 1, "food": 2, "scrap": 3}

WEAPONS = {"axe": (0.85, 3), "spear": (0.75, 2), "knife": (0.55, 2)}
"""Probability that a blow kills, and blows per hour; the best weapon first."""
RECIPES = {"bandage": {"cloth": 1}, "spear": {"scrap": 2, "cloth": 1}}

INTRO = """\
It is the third week. The radio said: helicopters fly over Weir Valley until 20:00 on day 3, then never again.
They land where somebody calls them from. The only transmitter is in the radio tower. It needs a fuse (the
caretaker kept one at the school, the hardware store or the farm) and a can of fuel (petrol station). The key to
its gate is at the police station. After the call you must hold out at the tower for six hours, beside a roaring
generator."""
