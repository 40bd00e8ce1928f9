"""
The board shows my mark in the centre. The opponent took a corner.

What next? I would take the opposite corner, since that threatens two lines.
"""
