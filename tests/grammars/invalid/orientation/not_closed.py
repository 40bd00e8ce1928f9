"""I think, and I never stop
