"""Language models: how one is called, how prompts are fenced, and how replies are read."""
