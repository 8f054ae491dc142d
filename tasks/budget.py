"""How often a step may be traced and compiled, counted for each run, and an autopsy when it happens too often.

`chex.assert_max_traces` alone isn't enough: it counts for the whole process, so a retry or a second training trips
it; `chex.disable_asserts()` silences it; it can't see a recompilation without a new trace (an uncommitted array that
becomes a committed one); it names no argument. It has to stand inside of jit: outside of `nnx.jit` it does nothing at
all. Here it is put in the right place, under a name of its own for each run, and behind our own count.
"""

from __future__ import annotations

import functools
import inspect
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import chex
import jax

from datasets.errors import ContractError, TraceBudgetExceeded
from tasks.autopsy import Signature, autopsy, signature

_BACKEND_COMPILE = "/jax/core/compile/backend_compile_duration"
_CACHE_HIT = "/jax/compilation_cache/cache_hits"

_local = threading.local()  # `.budget`, `.call`: whose step this thread is running, and with which arguments


@dataclass(frozen=True)
class Compilation:
    """One program that XLA built, or that came from the persistent compilation cache.

    Attributes:
        seconds: Spent by XLA, or spent reading the cache.
        from_cache: True if it came from the persistent compilation cache.
        signature: What it was built for.
    """

    seconds: float
    from_cache: bool
    signature: Signature


class TraceBudget:
    """Counts the traces and the compilations of one step in one run.

    Two budgets of one name are independent, so that retries, two trainings and a sweep in one process stay healthy.

    Attributes:
        name: Of the step; it is also the program's name in a profile and in the persistent cache.
        budget: Most traces, and most compilations, allowed.
        traces: What each trace was made for.
        compilations: Each program that was built.
        seconds: Spent on tracing, lowering and compiling ahead of time.
    """

    def __init__(self, name: str, budget: int = 1) -> None:
        if type(budget) is not int or budget < 1:
            raise ContractError("a trace budget is a whole number of at least 1", got=repr(budget))
        self.name = name
        self.budget = budget
        self.traces: list[Signature] = []
        self.compilations: list[Compilation] = []
        self.seconds = 0.0
        self._cache_hit = False
        self._programs = {f"jit({name})"}
        listen, hit = _listeners(weakref.ref(self))
        jax.monitoring.register_event_duration_secs_listener(listen)
        jax.monitoring.register_event_listener(hit)
        self._close = weakref.finalize(self, _unregister, listen, hit)

    @property
    def used(self) -> int:
        """Traces or compilations so far, whichever is more."""
        return max(len(self.traces), len(self.compilations))

    @property
    def from_cache(self) -> bool:
        """True if something was compiled and all of it came from the persistent compilation cache."""
        return bool(self.compilations) and all(c.from_cache for c in self.compilations)

    def close(self) -> None:
        """Stops counting compilations; done by itself when the budget is garbage."""
        self._close()

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a plain function so that each trace of it counts; the result belongs *inside* of jit.

        Raises:
            ContractError: The function, or something that it wraps, is jitted already: then the order is wrong.
        """
        _refuse_jitted(function, self.name)
        parameters = inspect.signature(function)
        chexed = self._chexed(function)

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            self._count_trace(signature(parameters, args, kwargs, on_host=False))
            return chexed(*args, **kwargs)

        # The program's name is part of the persistent cache's key, so it must be the same in every run.
        guarded.__name__ = guarded.__qualname__ = self.name
        return guarded

    def jit(self, function: Callable[..., Any], **jit_options: Any) -> Callable[..., Any]:  # noqa: ANN401
        """Makes a step that is guarded at every call, for steps that aren't compiled ahead of time.

        Args:
            function: Plain, then it is jitted here; or already jitted (`jax.jit`, `nnx.jit`), then its real
                compilations are counted.
            **jit_options: For `jax.jit`, such as donate_argnums; none for a function that is jitted already.

        Returns:
            A callable that raises TraceBudgetExceeded before a program beyond the budget runs.

        Raises:
            ContractError: A wrapper stands outside of jit that belongs inside of it.
        """
        if isinstance(function, jax.stages.Wrapped):
            if jit_options:
                raise ContractError(
                    f"{self.name}: the function is jitted already, so options for jit come too late",
                    got=", ".join(jit_options), cure="pass the plain function, or give the options where it is jitted",
                )  # fmt: skip
            jitted: Callable[..., Any] = function
            parameters = inspect.signature(inspect.unwrap(function))
            self._programs.add(f"jit({getattr(function, '__name__', self.name)})")
        else:
            parameters = inspect.signature(function)
            jitted = jax.jit(self.guard(function), **jit_options)

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            with self._watching(lambda: signature(parameters, args, kwargs, on_host=True)):
                return jitted(*args, **kwargs)

        return called

    def compile(self, function: Callable[..., Any], *args: Any, **jit_options: Any) -> jax.stages.Compiled:  # noqa: ANN401
        """Traces, lowers and compiles a plain function ahead of time; the result can't be traced again.

        Args:
            function: Plain.
            *args: Arrays or ShapeDtypeStructs.
            **jit_options: For `jax.jit`.

        Raises:
            TraceBudgetExceeded: The budget is spent.
            ContractError: The function is jitted already.
        """
        jitted = jax.jit(self.guard(function), **jit_options)
        parameters = inspect.signature(function)
        start = time.perf_counter()
        with self._watching(lambda: signature(parameters, args, {}, on_host=True)):
            compiled = jitted.lower(*args).compile()
        self.seconds += time.perf_counter() - start
        return compiled

    def refused(self, expected: Signature, got: Signature) -> TraceBudgetExceeded:
        """The error for a call that a program compiled ahead of time refuses, where jit would have traced again."""
        return self._exceeded("would be traced", self.used + 1, autopsy([expected], got))

    def report(self) -> dict[str, Any]:
        """JSON for the run's page: used, budget, seconds, from_cache."""
        return {
            "used": self.used, "budget": self.budget, "seconds": round(self.seconds, 3), "from_cache": self.from_cache,
        }  # fmt: skip

    def _count_trace(self, new: Signature) -> None:
        self.traces.append(new)
        if len(self.traces) > self.budget:
            raise self._exceeded("traced", len(self.traces), autopsy(self.traces[:-1], new))

    def _count_compilation(self, seconds: float) -> None:
        new = _local.call()
        self.compilations.append(Compilation(seconds, self._cache_hit, new))
        if len(self.compilations) > self.budget:
            # Raised from inside of JAX, before the program runs: a donated state is still alive.
            earlier = [c.signature for c in self.compilations[:-1]]
            raise self._exceeded("compiled", len(self.compilations), autopsy(earlier, new))

    def _exceeded(self, verb: str, times: int, findings: tuple[list[str], str, str]) -> TraceBudgetExceeded:
        changes, cause, cure = findings
        return TraceBudgetExceeded(
            f"step {self.name!r} {verb} {times} times, more than its budget of {self.budget}",
            budget=self.budget, traces=max(times, len(self.traces)), changed="; ".join(changes), cause=cause, cure=cure,
        )  # fmt: skip

    def _chexed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function under `chex.assert_max_traces`, with a name of its own for this run."""

        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            return function(*args, **kwargs)

        named.__name__ = f"{self.name}_{uuid.uuid4().hex}"
        try:
            return chex.assert_max_traces(named, self.budget)
        except (OSError, TypeError):  # Chex wants source code, which a prompt or a partial doesn't have
            return named

    @contextmanager
    def _watching(self, call: Callable[[], Signature]) -> Iterator[None]:
        outer = getattr(_local, "budget", None), getattr(_local, "call", None)
        _local.budget, _local.call = self, call
        self._cache_hit = False
        try:
            yield
        finally:
            _local.budget, _local.call = outer


def _listeners(of: weakref.ref[TraceBudget]) -> tuple[Callable[..., None], Callable[..., None]]:
    """The two listeners of one budget; they hold it weakly, or it would never be garbage."""

    def on_duration(event: str, seconds: float, **facts: Any) -> None:  # noqa: ANN401
        budget = of()
        if event != _BACKEND_COMPILE or budget is None or getattr(_local, "budget", None) is not budget:
            return
        try:
            if facts.get("fun_name") in budget._programs:
                budget._count_compilation(seconds)
        finally:
            budget._cache_hit = False

    def on_event(event: str, **_facts: Any) -> None:  # noqa: ANN401
        budget = of()
        if event == _CACHE_HIT and budget is not None and getattr(_local, "budget", None) is budget:
            budget._cache_hit = True

    return on_duration, on_event


def _unregister(on_duration: Callable[..., None], on_event: Callable[..., None]) -> None:
    jax.monitoring.unregister_event_duration_listener(on_duration)
    jax.monitoring.unregister_event_listener(on_event)


def _refuse_jitted(function: Callable[..., Any], name: str) -> None:
    link: Any = function
    while link is not None:
        if isinstance(link, jax.stages.Wrapped):
            raise ContractError(
                f"step {name!r} is wrapped in the wrong order",
                got=f"{type(function).__name__} {getattr(function, '__name__', '')} around an already jitted function",
                expected="jit outermost: jax.jit(chex.assert_max_traces(step, n)), never the other way round",
                cure="pass the plain function, or pass the jitted function itself so that its compilations are counted",
            )
        link = link.func if isinstance(link, functools.partial) else getattr(link, "__wrapped__", None)
