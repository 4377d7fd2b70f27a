"""The routes that come with the package: what they are called, where they are, and which key they want."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass

from nbagent.errors import InputError
from nbagent.llm.adapter import Adapter
from nbagent.llm.dialects import CUSTOM, DEEPSEEK, OPENAI, ChatDialect

__all__ = ("ROUTES", "Route", "RouteState", "connect", "default_model", "known_routes", "parse_model")


@dataclass(frozen=True, slots=True)
class Route:
    """One route.

    Attributes:
        name: The part of a model's name before the slash.
        key_variable: Environment variable of the key, where one is wanted.
        base_url: Where the server is; none where it has to be given.
        default_model: Model used when only the route, or nothing, is named.
        dialect: How the server differs.
        needs_key: Whether nothing works without a key.
    """

    name: str
    key_variable: str | None
    base_url: str | None
    default_model: str | None
    dialect: ChatDialect
    needs_key: bool = True


@dataclass(frozen=True, slots=True)
class RouteState:
    """A route here and now: whether it can be used, and what is missing."""

    route: Route
    ready: bool
    missing: str | None


ROUTES: dict[str, Route] = {
    route.name: route
    for route in (
        Route("deepseek", "DEEPSEEK_API_KEY", "https://api.deepseek.com", "deepseek-flash", DEEPSEEK),
        Route("openai", "OPENAI_API_KEY", "https://api.openai.com/v1", "gpt-5-mini", OPENAI),
        Route("custom", "NBAGENT_CUSTOM_API_KEY", None, None, CUSTOM, needs_key=False),
        Route("demo", None, None, "demo", CUSTOM, needs_key=False),
    )
}
_BASE_URL = "NBAGENT_CUSTOM_BASE_URL"
_MODEL = "NBAGENT_CUSTOM_MODEL"


def parse_model(name: str) -> tuple[str, str]:
    """`PROVIDER/MODEL` as its two parts; a route's name alone means its default model.

    Raises:
        InputError: `INVALID_MODEL`, `UNKNOWN_PROVIDER`, `UNKNOWN_MODEL`.
    """
    provider, _, model = name.strip().partition("/")
    if not provider or not name.isprintable():
        raise InputError(f"model {name!r} is not usable: name it as PROVIDER/MODEL", code="INVALID_MODEL")
    route = ROUTES.get(provider)
    if route is None:
        near = difflib.get_close_matches(provider, ROUTES, 1, cutoff=0.7)
        hint = f', did you mean "{near[0]}"?' if near else "."
        raise InputError(
            f'unknown provider "{provider}"{hint} Known: {", ".join(ROUTES)}. Any other server: --model custom/NAME '
            "--base-url URL",
            code="UNKNOWN_PROVIDER",
        )
    if not model and route.default_model is None:
        raise InputError(
            f'"{name}" names no model: write {provider}/NAME, NAME being what the server calls it', code="INVALID_MODEL"
        )
    if provider == "demo" and model not in {"", "demo"}:
        raise InputError(f'the demo route has one model, "demo", not "{model}"', code="UNKNOWN_MODEL")
    return provider, model or route.default_model or ""


def default_model(environ: Mapping[str, str] | None = None) -> str | None:
    """The model to use when none was named: of the first route whose key is set, or none."""
    environ = os.environ if environ is None else environ
    for state in known_routes(environ):
        route = state.route
        if route.name == "custom" and state.ready and environ.get(_MODEL):
            return f"custom/{environ[_MODEL]}"
        if route.needs_key and state.ready:
            return f"{route.name}/{route.default_model}"
    return None


def known_routes(environ: Mapping[str, str] | None = None) -> list[RouteState]:
    """Every route, whether it is ready, and what it lacks."""
    environ = os.environ if environ is None else environ
    states: list[RouteState] = []
    for route in ROUTES.values():
        missing = None
        if route.needs_key and route.key_variable and not environ.get(route.key_variable):
            missing = f"set {route.key_variable}"
        elif route.name == "custom" and not environ.get(_BASE_URL):
            missing = f"give --base-url or set {_BASE_URL}"
        states.append(RouteState(route, missing is None, missing))
    return states


def connect(provider: str, *, base_url: str | None = None, environ: Mapping[str, str] | None = None) -> Adapter:
    """An adapter for a route, with its key from the environment.

    Args:
        provider: The route.
        base_url: Overrides where its server is.
        environ: Where keys are looked up.

    Raises:
        InputError: `UNKNOWN_PROVIDER`, `MISSING_KEY`, `MISSING_BASE_URL`, `INVALID_BASE_URL`, `INVALID_CREDENTIAL`.
    """
    environ = os.environ if environ is None else environ
    route = ROUTES[parse_model(f"{provider}/x" if provider != "demo" else provider)[0]]
    if route.name == "demo":
        from nbagent.llm.demo import DemoAdapter

        return DemoAdapter()
    key = (environ.get(route.key_variable) or "").strip() if route.key_variable else ""
    if route.needs_key and not key:
        raise InputError(
            f"route {route.name} needs a key: set the environment variable {route.key_variable} before the kernel starts "
            f'(or os.environ["{route.key_variable}"] = ... in a cell), or try --model demo',
            code="MISSING_KEY",
        )
    address = base_url or (environ.get(_BASE_URL) if route.name == "custom" else route.base_url)
    if not address:
        raise InputError(
            f"route custom needs the server's address: give --base-url URL or set {_BASE_URL}", code="MISSING_BASE_URL"
        )
    from nbagent.llm.adapters import create

    return create(
        "openai-chat",
        base_url=address,
        api_key=key or None,
        dialect=route.dialect,
        key_name=route.key_variable or "the API key",
    )
