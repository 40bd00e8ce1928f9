def action_nest(self):
    deep = [[[[({"a": [1, {2: (3,)}]},)]]]]
    table = {
        **{str(i): [j for j in range(i) if j % 2 if j > 1] for i in range(9)},
        "last": (lambda x, *y, z=1, **w: x if y else -z)(1),
    }
    part = deep[0][0][0:1][::-1][...,]
    assert len(table) == 10, "Are there ten rows?"
    return part, *table.values()
self.add_action("Build a nest", action_nest)
