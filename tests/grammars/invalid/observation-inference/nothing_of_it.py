pass
# q: Is this needed? No. (80%)
"""No change."""
