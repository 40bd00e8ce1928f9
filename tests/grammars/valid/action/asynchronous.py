async def action_wait(self):
    async with session() as s, s.get("/") as answer:
        body = [line async for line in answer if line]
    assert await answer.ok(), "Is the answer in order?"
    return body
self.add_action("Wait for the server", action_wait)
