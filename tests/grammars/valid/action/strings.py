def action_write(self):
    first = 'a # q: b "c" \' d'
    second = """
#q: Is this a string? Yes. (99%)
#endblock
''' nested '''
"""
    third = r'\d+\'' + f"{first!r:>{10}} {{braces}} {second[0:3]}" + rb'\x00'.decode()
    fourth = ("one "
              'two '
              f'three {3:03d}')
    assert third, f"Is {first} what we wrote?"
    return u'x' + fourth
self.add_action("Write strings", action_write)
