"""Its action plans the next two ticks. The third is executed again."""


async def action_think_ahead(self):
    self.plan(2)
    self.update_cache("looks", 0)

    def looks(self):
        self.update_cache("looks", self.get_cache("looks") + 1)
        return self.get_cache("looks")

    self.add_observation_view("Number of looks", looks)


def has_anything_been_looked_at(self):
    return self.get_cache("looks") > 0


self.add_action("Think ahead", action_think_ahead)
self.task.add_evaluation("Has anything been looked at?", has_anything_been_looked_at)
