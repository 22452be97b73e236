"""Driving a server with the clients of a scenario."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calibration.record.attempt import Attempt, Exchange, Patience
from calibration.record.http_client import Server, http_library
from calibration.record.recording_file import RecordingFile
from calibration.record.rows import parts_of, row_of
from calibration.record.text import Lengths, Message, Reply, Writer, measured, probes, reply_message
from calibration.record.usage import counts_of
from calibration.record.world import Asked, LiveWorld, TriedWorld
from sim.errors import InputError, Problem
from sim.scenario import Scenario

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 60.0
"""Before a further attempt: twice as long each time, or as long as the server asks."""
_HELD_S = 1e-3


@dataclass(frozen=True)
class Orders:
    """What the options of the command say.

    Parameters
    ----------
    seed
        Of the workload.
    salt
        Of the text.
    time_scale
        Real seconds of each second that a client waits.
    patience
        Of each attempt.
    retries
        Attempts after the first.
    max_in_flight
        Requests that the server gets at once; more wait here.
    stream_tokens
        ``max_tokens`` of an answer without end.
    tool_role
        As in `calibration.record.text.Writer`.
    body
        Further keys of every request.
    """

    seed: int
    salt: str
    time_scale: float = 1.0
    patience: Patience = field(default_factory=lambda: Patience(300.0, 3600.0))
    retries: int = 2
    max_in_flight: int = 64
    stream_tokens: int = 8192
    tool_role: Any = "tool"
    body: Mapping[str, Any] = field(default_factory=dict)


class Driver:
    """One recording in the making.

    Parameters
    ----------
    scenario
        Its clients ask.
    server
        Answers.
    orders
        How.
    """

    def __init__(self, scenario: Scenario, server: Server, orders: Orders) -> None:
        self._scenario, self._server, self._orders = scenario, server, orders
        self._writer = Writer(orders.salt, Lengths(), orders.tool_role)
        self._begin_s = 0.0
        self._request_id = 0
        self._ends: dict[str, float] = {}
        """End of the last answer with a token, by session."""
        self.calibration: list[int | None] = []
        """Tokens of the probes, as the server counts."""
        self.prepared: list[dict[str, Any]] = []
        """Prompts that were sent before the clock started."""

    @property
    def lengths(self) -> Lengths:
        """Of the server's tokenizer."""
        return self._writer.lengths

    async def run(
        self, make_file: Callable[[Driver], RecordingFile], tell: Callable[[dict[str, Any]], None]
    ) -> None:
        """Measure the tokenizer, prepare the server's cache, and let the clients ask.

        Parameters
        ----------
        make_file
            Opens the recording, as soon as the server has answered.
        tell
            Is given each row.

        Raises
        ------
        InputError
            The server does not answer at all, or refuses a plain request.
        """
        http = http_library()
        self._in_flight = asyncio.Semaphore(self._orders.max_in_flight)
        # A connection for each request: one that the server has just closed is no failure of it.
        connector = http.TCPConnector(limit=0, force_close=True)
        async with http.ClientSession(
            connector=connector, trust_env=False, cookie_jar=http.DummyCookieJar()
        ) as session:
            self._exchange = Exchange(session, self._server, self._orders.patience, self.now)
            await self._measure()
            await self._prepare()
            self._file = make_file(self)
            self._tell = tell
            world = LiveWorld(
                self._scenario, self._orders.seed, self._answer, self._orders.time_scale
            )
            self._begin_s = asyncio.get_running_loop().time()
            await world.run()

    def now(self) -> float:
        """Return the seconds since the start."""
        return asyncio.get_running_loop().time() - self._begin_s

    async def _measure(self) -> None:
        for messages in probes(self._orders.salt):
            attempt = await self._exchange.attempt(self._body(messages, 1))
            if attempt.status == "rejected" or (
                attempt.status == "failed" and not self.calibration
            ):
                raise InputError(Problem("--url", self._server.base, _refusal(attempt)))
            counts = counts_of(attempt.answer, 1, None)
            is_told = counts.basis["prompt_tokens"] == "usage"
            self.calibration.append(counts.prompt_tokens if is_told else None)
        self._writer.lengths = measured(self.calibration)

    async def _prepare(self) -> None:
        """Let the server compute what the scenario says it holds already."""
        tried = TriedWorld(self._scenario, self._orders.seed)
        for asked in tried.asked:
            if asked.resident:
                messages, _ = self._writer.messages(asked.request, asked.resident)
                attempt = await self._exchange.attempt(self._body(messages, 1))
                counts = counts_of(attempt.answer, asked.request.prompt_tokens, None)
                self.prepared.append(
                    {
                        "session_id": asked.request.session_id,
                        "prompt_tokens": counts.prompt_tokens,
                        "status": attempt.status,
                        "seconds": round((attempt.end_s or 0.0) - attempt.submit_s, 6),
                    }
                )

    def _body(self, messages: list[Message], max_tokens: int) -> dict[str, Any]:
        return {
            "messages": messages,
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._orders.body,
        }

    async def _answer(self, asked: Asked) -> None:
        """Get an answer for a request, with as many attempts as are allowed."""
        request, orders = asked.request, self._orders
        begin_s = self.now()
        async with self._in_flight:
            held_s = self.now() - begin_s
            messages, expected = self._writer.messages(request)
            max_tokens = asked.output_tokens or orders.stream_tokens
            body = self._body(messages, max_tokens)
            for number in range(1, orders.retries + 2):
                kept: list[Attempt] = []
                request_id, self._request_id = self._request_id, self._request_id + 1
                try:
                    attempt = await self._exchange.attempt(
                        body, asked.gaps_ps, orders.time_scale, kept.append
                    )
                finally:
                    # Also when it is cancelled: what came of it is kept.
                    for each in kept:
                        held = {"held_s": round(held_s, 6)} if held_s > _HELD_S else {}
                        row = self._row(
                            each,
                            request,
                            expected,
                            max_tokens,
                            {"request_id": request_id, "attempt": number, **held},
                        )
                        self._file.add(row)
                        self._tell(row)
                if row["status"] == "completed":
                    request.status = "completed"
                    self._keep(attempt, asked, row["output_tokens"])
                    return
                if not attempt.may_retry or number > orders.retries:
                    break
                wait_s = attempt.retry_after_s or _FIRST_WAIT_S * 2 ** (number - 1)
                await asyncio.sleep(min(wait_s, _LONGEST_WAIT_S))
        # Without its answer a conversation cannot go on.
        request.status = "rejected"

    def _row(
        self,
        attempt: Attempt,
        request: Any,
        expected: int,
        max_tokens: int,
        more: dict[str, Any],
    ) -> dict[str, Any]:
        counts = counts_of(attempt.answer, expected, max_tokens)
        before_s = self._ends.get(request.session_id) if request.session_id else None
        if parts := parts_of(request, counts.prompt_tokens, self.lengths):
            more = {**more, "parts": parts}
        row = row_of(
            attempt,
            counts,
            session_id=request.session_id or None,
            turn_index=request.turn_index,
            pause_before_s=0.0 if before_s is None else attempt.submit_s - before_s,
            pause_kind=request.pause_kind,
            client=request.client,
            max_tokens=max_tokens,
            expected_prompt_tokens=expected,
            **more,
        )
        if counts.output_tokens and request.session_id and attempt.end_s is not None:
            self._ends[request.session_id] = attempt.end_s
        return row

    def _keep(self, attempt: Attempt, asked: Asked, tokens: int) -> None:
        answer = attempt.answer
        thoughts = {key: "".join(texts) for key, texts in answer.reasoning.items()}
        self._writer.replies[asked.request.answer_segment] = Reply(
            reply_message(answer.text, thoughts), tokens, asked.output_tokens or tokens
        )


def _refusal(attempt: Attempt) -> str:
    hint = ""
    if attempt.http_status is not None and attempt.http_status < 500:
        hint = "; --model names the model, --key-env the variable with a key, where it wants them"
    return f"a first small request: {attempt.error}{hint}"
