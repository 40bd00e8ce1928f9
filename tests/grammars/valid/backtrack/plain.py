"""
That went the wrong way: the title promised a corner, the code took the centre.
"""
