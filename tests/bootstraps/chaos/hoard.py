"""The task: live with a disk that is always full. There is no end to it."""

import os


def view_disk(self):
    written = 0
    try:
        with open(f"hoard-{len(os.listdir('.'))}", "wb") as hoard:
            while True:
                written += hoard.write(b"x" * 2**20)
    except OSError as error:
        return f"The disk took {written >> 20} MB more, then: {error.strerror}"


def there_is_a_hoard(self):
    return any(name.startswith("hoard-") and os.path.getsize(name) for name in os.listdir("."))


def action_begin(self):
    main = agent.subagent("main", None, "Fill the disk", {"filled": {"type": "boolean"}}, args.budget)
    main.add_observation_view("Disk", view_disk)
    main.task.add_evaluation("Is there a hoard?", there_is_a_hoard)
    return "begun"


self.add_action("Begin to fill the disk", action_begin)
