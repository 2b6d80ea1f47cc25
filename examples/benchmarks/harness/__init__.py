"""Data, methods, models and measures of the benchmarks."""
