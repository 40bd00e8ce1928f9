"""Its callbacks add blocks, and have the model write a block and continue a text."""


async def action_plan(self):
    plan = await self.generate_block("orientation", self.context, ["Is this a plan?"], {}, hint="Plan a fable.")
    beginnings = await generate_outputs_vllm(self.model_name, "Once upon a time", 8, n=2, stop=["\n"])
    self.update_cache("plan", plan)
    self.add_error_block("No fable is written yet.")

    def show_beginnings(self):
        self.add_block({"type": "observation", "title": "A note of the view", "observation": plan["type"]})
        return len(beginnings)

    self.add_observation_view("Beginnings", show_beginnings)
    again = await self.generate_block("expectation")
    return [plan["index"], again["type"], len(beginnings)]


def is_there_a_plan(self):
    self.add_error_block("An evaluation said this.")
    return self.get_cache("plan")["body"].startswith('"""')


self.add_action("Plan", action_plan)
self.task.add_evaluation("Is there a plan?", is_there_a_plan)
