async def eval_answer(self):
    result = await fetch("/state")
    return not result["over"]
self.add_evaluation("Is the game still open?", eval_answer)
