"""Text that can be stored and shown: no half characters."""


def repair_surrogates(text: str) -> str:
    """Join surrogates that are a pair; replace a lone one, which is no character and cannot be stored, by U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def describe_error(error: BaseException) -> str:
    """Name an error's class and repeat its words, for a record or a trace."""
    return repair_surrogates(f"{type(error).__name__}: {error}")
