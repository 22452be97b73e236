"""One attempt of a request: one HTTP exchange, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calibration.record.http_client import CONNECT_S, Server, http_library
from calibration.record.stream import Answer, ChatReader, shown
from sim.units import to_s

MOST_ANSWER_BYTES = 1 << 28
_MOST_ERROR_BYTES = 4000
BUSY = (429, 503)
"""Statuses by which a server asks to come back later."""


@dataclass
class Attempt:
    """What became of one attempt; instants in seconds of the recording."""

    submit_s: float
    answer: Answer = field(default_factory=Answer)
    headers_s: float | None = None
    end_s: float | None = None
    """None if it was given up by us."""
    status: str = "unfinished"
    """completed, rejected (the server refused it), failed or unfinished (we gave it up)."""
    error: str = ""
    http_status: int | None = None
    retry_after_s: float | None = None
    marks: list[str] = field(default_factory=list)

    @property
    def may_retry(self) -> bool:
        """Whether it may go better the next time."""
        return self.status == "failed" or (self.status == "rejected" and self.http_status in BUSY)


@dataclass(frozen=True)
class Patience:
    """How long an attempt may take.

    Parameters
    ----------
    silence_s
        Without a byte.
    whole_s
        In all.
    """

    silence_s: float
    whole_s: float


class Exchange:
    """Sends attempts to a server.

    Parameters
    ----------
    session
        Of aiohttp.
    server
        Where to.
    patience
        Limits.
    now
        The clock of the recording.
    """

    def __init__(
        self, session: Any, server: Server, patience: Patience, now: Callable[[], float]
    ) -> None:
        self._session, self._server = session, server
        self._patience, self._now = patience, now
        self._http = http_library()

    async def attempt(
        self,
        body: Mapping[str, Any],
        gaps_ps: Sequence[int] = (),
        time_scale: float = 1.0,
        into: Callable[[Attempt], None] = lambda _: None,
    ) -> Attempt:
        """Send a chat completion and read its answer to the end.

        Parameters
        ----------
        body
            Of the request.
        gaps_ps
            How long not to read after each token; empty: never.
        time_scale
            Real seconds of each second of such a gap.
        into
            Is given the attempt before anything is awaited: it survives a cancellation.

        Returns
        -------
        Attempt
            Whatever the server did; only a cancellation is raised.
        """
        attempt = Attempt(self._now())
        into(attempt)
        patience = self._patience
        limits = self._http.ClientTimeout(
            total=None, sock_connect=CONNECT_S, sock_read=patience.silence_s
        )
        try:
            async with (
                asyncio.timeout(patience.whole_s),
                self._session.post(
                    self._server.at("/chat/completions"),
                    json=body,
                    headers=self._server.headers(),
                    timeout=limits,
                    allow_redirects=False,
                ) as response,
            ):
                attempt.headers_s, attempt.http_status = self._now(), response.status
                if response.status == 200:
                    await self._read(attempt, response, _Reading(gaps_ps, time_scale))
                else:
                    await self._refused(attempt, response)
        except self._http.SocketTimeoutError:
            self._fail(attempt, f"timeout: no byte for {patience.silence_s:g} s")
        except (self._http.ConnectionTimeoutError, self._http.ClientConnectorError) as error:
            self._fail(attempt, f"connect: {_reason(error)}")
        except TimeoutError:
            self._fail(attempt, f"timeout: not done after {patience.whole_s:g} s")
        except (self._http.ClientPayloadError, self._http.ServerDisconnectedError, OSError):
            if attempt.answer.finish_reason:
                self._judge(attempt)
            else:
                self._fail(attempt, "closed early: the connection ended before the answer")
        except (self._http.ClientError, ValueError) as error:
            self._fail(attempt, f"garbage: {_reason(error)}")
        return attempt

    async def _read(self, attempt: Attempt, response: Any, reading: _Reading) -> None:
        reader, size = ChatReader(attempt.answer), 0
        answer = attempt.answer
        is_stream = "event-stream" in response.headers.get("Content-Type", "event-stream")
        whole = bytearray()
        async for data in response.content.iter_any():
            now_s = self._now()
            size += len(data)
            if size > MOST_ANSWER_BYTES:
                answer.error = f"garbage: over {MOST_ANSWER_BYTES >> 20} MiB"
                break
            if not is_stream:
                whole += data
                continue
            reader.feed(data, now_s)
            if answer.error or answer.is_done:
                break
            await reading.pause(len(answer.chunks))
        attempt.end_s = self._now()
        if is_stream:
            reader.end(attempt.end_s)
        else:
            reader.document(bytes(whole), attempt.end_s)
            attempt.marks.append("not streamed: all tokens at the end")
        self._judge(attempt)

    def _judge(self, attempt: Attempt) -> None:
        """Say how an answer ended that was read as far as it goes."""
        attempt.end_s = self._now() if attempt.end_s is None else attempt.end_s
        attempt.status, error = judge(attempt)
        attempt.error = self._server.scrubbed(error)

    async def _refused(self, attempt: Attempt, response: Any) -> None:
        text = shown(await response.content.read(_MOST_ERROR_BYTES), 200)
        attempt.end_s = self._now()
        is_ours = response.status in BUSY or response.status < 500
        attempt.status = "rejected" if is_ours else "failed"
        attempt.error = self._server.scrubbed(f"http {response.status}: {text}")
        after = response.headers.get("Retry-After", "")
        if after.isdecimal():
            attempt.retry_after_s = float(after[:9])

    def _fail(self, attempt: Attempt, error: str) -> None:
        attempt.end_s = self._now() if attempt.end_s is None else attempt.end_s
        attempt.status, attempt.error = "failed", self._server.scrubbed(error)


def judge(attempt: Attempt) -> tuple[str, str]:
    """Return status and error of an attempt whose answer was read as far as it goes.

    What is odd about an answer that counts as completed is added to the marks.
    """
    answer = attempt.answer
    if answer.error:
        return "failed", answer.error
    if not answer.finish_reason and not answer.is_done:
        return "failed", "closed early: the stream ended before the answer"
    is_counted = answer.usage.get("completion_tokens") and answer.finish_reason
    if not answer.chunks and not is_counted:
        return "failed", "empty: an answer without a token"
    if not answer.is_done:
        attempt.marks.append("the stream ended without [DONE]")
    if not answer.finish_reason:
        attempt.marks.append("no finish_reason")
    return "completed", ""


class _Reading:
    """A client that stops reading now and then."""

    def __init__(self, gaps_ps: Sequence[int], time_scale: float) -> None:
        self._gaps_ps, self._time_scale, self._read = gaps_ps, time_scale, 0

    async def pause(self, tokens: int) -> None:
        """Wait as long as the client does after the tokens that came."""
        if self._gaps_ps:
            gap_ps = sum([self._gaps_ps[index] for index in range(self._read, tokens)])
            self._read = tokens
            if gap_ps:
                await asyncio.sleep(to_s(gap_ps) * self._time_scale)


def _reason(error: BaseException) -> str:
    return shown(str(error).encode() or type(error).__name__.encode(), 120)
