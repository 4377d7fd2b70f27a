"""What an answer costs, from the published prices that the `genai-prices` package knows (extra `prices`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ("Price", "price")

Price = Callable[[str, str, Mapping[str, Any]], "float | None"]
"""`(provider, model, usage) -> dollars`, `usage` as in the log; none when the price is unknown."""


def price(provider: str, model: str, usage: Mapping[str, Any]) -> float | None:
    """Dollars that an answer cost, or none when the package is not installed or does not know the model.

    Args:
        provider: Route.
        model: Model name on that route.
        usage: `{inputTokens, outputTokens, cacheReadTokens?, cacheWriteTokens?}`, cached tokens not among the input.
    """
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    read, written = usage.get("cacheReadTokens", 0), usage.get("cacheWriteTokens", 0)
    counted = Usage(
        input_tokens=usage.get("inputTokens", 0) + read + written,
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=usage.get("outputTokens", 0),
    )
    try:
        return float(calc_price(counted, model_ref=model, provider_id=provider).total_price)
    except LookupError:
        return None
