"""Who listens is asked, in order, and a failure stays where it belongs."""

from __future__ import annotations

import functools
import logging

import pytest

from nbagent.errors import InputError, LifecycleError
from nbagent.hooks import POINTS, Hooks

pytestmark = pytest.mark.anyio


def listener(name, heard):
    def listen(payload):
        heard.append((name, payload))

    return listen


def link(name, asked):
    async def ask(payload, next):
        asked.append(f"{name} down")
        answer = await next()
        asked.append(f"{name} up")
        return f"{name}({answer})"

    return ask


async def answer_default():
    return "default"


def test_listeners_are_called_in_order_the_farther_layer_first():
    heard = []
    far = Hooks()
    near = Hooks(far)
    for layer, name in ((near, "near 1"), (far, "far"), (near, "near 2")):
        layer.on("agent/status", listener(name, heard))
    near.notify("agent/status", 1)
    assert [name for name, _ in heard] == ["far", "near 1", "near 2"]


def test_a_farther_layer_does_not_hear_the_nearer_ones_listeners_and_siblings_are_apart():
    heard = []
    far = Hooks()
    one, other = Hooks(far), Hooks(far)
    one.on("agent/status", listener("one", heard))
    other.on("agent/status", listener("other", heard))
    far.notify("agent/status", 1)
    assert heard == []
    other.notify("agent/status", 2)
    assert heard == [("other", 2)]
    assert (far.has("agent/status"), one.has("agent/status")) == (False, True)


def test_a_listener_that_fails_is_logged_by_its_name_and_the_others_still_hear(caplog):
    heard, hooks = [], Hooks()

    def broken(_payload):
        raise RuntimeError("no")

    hooks.on("agent/status", broken)
    hooks.on("agent/status", listener("other", heard))
    with caplog.at_level(logging.ERROR):
        hooks.notify("agent/status", 1)
    assert heard == [("other", 1)]
    assert "broken" in caplog.text


def test_removing_twice_takes_away_one_registration():
    heard, hooks = [], Hooks()
    same = listener("same", heard)
    remove = hooks.on("agent/status", same)
    hooks.on("agent/status", same)
    remove()
    remove()
    hooks.notify("agent/status", 1)
    assert len(heard) == 1


def test_a_listener_may_remove_itself_while_it_is_called():
    heard, hooks = [], Hooks()

    def once(_payload):
        heard.append("once")
        remove()

    remove = hooks.on("agent/status", once)
    hooks.on("agent/status", listener("other", heard))
    hooks.notify("agent/status", 1)
    hooks.notify("agent/status", 2)
    assert heard == ["once", ("other", 1), ("other", 2)]


async def test_a_waterfall_goes_down_to_the_default_and_comes_back_up():
    asked = []
    far = Hooks()
    near = Hooks(far)
    near.on("agent/request", link("near", asked))
    far.on("agent/request", link("far", asked))
    assert await near.waterfall("agent/request", None, answer_default) == "far(near(default))"
    assert asked == ["far down", "near down", "near up", "far up"]
    assert await Hooks().waterfall("agent/request", None, answer_default) == "default"


async def test_a_listener_that_does_not_go_on_decides_alone():
    asked, hooks = [], Hooks()

    async def decide(payload, next):
        return "mine"

    hooks.on("agent/request", decide)
    hooks.on("agent/request", link("never", asked))
    assert await hooks.waterfall("agent/request", None, answer_default) == "mine"
    assert asked == []


async def test_a_listener_may_ask_what_follows_more_than_once():
    calls, hooks = [], Hooks()

    async def twice(payload, next):
        return [await next(1), await next(2)]

    async def default(number):
        calls.append(number)
        return number

    hooks.on("agent/request", twice)
    assert await hooks.waterfall("agent/request", None, default) == [1, 2]
    assert calls == [1, 2]


async def test_every_answer_of_a_listener_is_checked_before_the_one_above_gets_it():
    seen, hooks = [], Hooks()

    async def above(payload, next):
        seen.append(await next())
        return "fine"

    async def below(payload, next):
        return "bad"

    def accept(answer):
        if answer == "bad":
            raise ValueError("refused")
        return answer

    hooks.on("agent/request", above)
    hooks.on("agent/request", below)
    with pytest.raises(ValueError, match="refused"):
        await hooks.waterfall("agent/request", None, answer_default, accept)
    assert seen == []


async def test_what_a_waterfall_or_serial_listener_raises_reaches_the_caller():
    heard, hooks = [], Hooks()

    async def broken(*_):
        raise RuntimeError("veto")

    async def later(_payload):
        heard.append("later")

    hooks.on("agent/request", broken)
    hooks.on("agent/created", broken)
    hooks.on("agent/created", later)
    with pytest.raises(RuntimeError, match="veto"):
        await hooks.waterfall("agent/request", None, answer_default)
    with pytest.raises(RuntimeError, match="veto"):
        await hooks.serial("agent/created", None)
    assert heard == []


async def test_serial_listeners_are_awaited_one_after_another():
    import anyio

    heard, hooks = [], Hooks()

    async def slow(_payload):
        await anyio.sleep(0.01)
        heard.append("slow")

    async def quick(_payload):
        heard.append("quick")

    hooks.on("agent/created", slow)
    hooks.on("agent/created", quick)
    await hooks.serial("agent/created", None)
    assert heard == ["slow", "quick"]


def test_an_unknown_point_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="agent/status") as refused:
        Hooks().on("agent/stauts", print)
    assert refused.value.code == "UNKNOWN_EXTENSION_POINT"
    assert len(set(POINTS)) == len(POINTS)


class Callable:
    async def __call__(self, payload, next):
        return await next()


async def wrapped(extra, payload, next):
    return await next()


@pytest.mark.parametrize("listener", [Callable(), functools.partial(wrapped, 1), Callable().__call__])
async def test_any_async_callable_may_listen_to_a_waterfall(listener):
    hooks = Hooks()
    hooks.on("agent/request", listener)
    assert await hooks.waterfall("agent/request", None, answer_default) == "default"
    with pytest.raises(InputError) as refused:
        hooks.on("agent/status", listener)
    assert refused.value.code == "INVALID_LISTENER"


def test_a_plain_function_cannot_listen_to_what_is_awaited():
    for point in ("agent/request", "agent/created"):
        with pytest.raises(InputError, match="async function") as refused:
            Hooks().on(point, lambda *_: None)
        assert refused.value.code == "INVALID_LISTENER"


def test_a_closed_layer_is_silent_and_takes_no_more():
    heard, far = [], Hooks()
    near = Hooks(far)
    far.on("agent/status", listener("far", heard))
    remove = near.on("agent/status", listener("near", heard))
    near.close()
    near.notify("agent/status", 1)
    assert heard == [("far", 1)]
    with pytest.raises(LifecycleError) as refused:
        near.on("agent/status", listener("late", heard))
    assert refused.value.code == "SCOPE_DISPOSED"
    remove()
