"""Ranking, a model's selection and graph expansion, behind LlamaIndex's node postprocessor interface."""
