"""Methods of several steps: the loop that runs them, and what they have found so far."""
