"""Multi-step methods: the loop that runs them, and the passages and facts that they keep from step to step."""
