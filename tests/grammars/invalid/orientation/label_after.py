"""I think."""
#q: Is this good thinking? Yes. (99%)
