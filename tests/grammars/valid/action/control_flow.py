def action_flow(self):
    total = 0
    for i, (a, *b) in enumerate([(1, 2), (3, 4)]):
        while True:
            if a > 2:
                break
            elif not b or a is not None and a not in b:
                total += 1
                continue
            else:
                pass
        else:
            total -= 1
    try:
        total //= 0
    except (ZeroDivisionError, ValueError) as error:
        total = str(error)
    except Exception:
        raise RuntimeError("no") from None
    else:
        del a
    finally:
        total = 0x1F + 0b11 + 0o7 + 1_000 + 1e-3 + 2.5j.real + .5
    with open("a") as f, (open("b")) as g:
        f.write(g.read())
    assert total != 0, "Is there a total?"
self.add_action("Go through the flow", action_flow)
