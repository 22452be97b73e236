"""One request of an agent on its way through the proxy: sizes and times."""

from __future__ import annotations

from typing import Any

from calibration.record.attempt import BUSY, Attempt, judge
from calibration.record.conversations import Place, messages_of, pause_kind_of, text_of
from calibration.record.http_client import Server
from calibration.record.rows import row_of
from calibration.record.stream import ChatReader
from calibration.record.usage import counts_of

_MOST_DOCUMENT_BYTES = 1 << 26
_CHARACTERS_PER_TOKEN = 4.0
"""Where the server does not count."""


class Watched:
    """What passes of one request.

    Parameters
    ----------
    request_id, path, body, size_bytes
        The request.
    place
        The session that it belongs to.
    attempt
        Filled by what passes.
    data
        What to send instead of what the agent sent; None for the same.
    reader
        Of the kind of answer.
    """

    def __init__(
        self,
        request_id: int,
        path: str,
        body: dict[str, Any],
        size_bytes: int,
        place: Place,
        attempt: Attempt,
        data: bytes | None,
        reader: type[ChatReader],
    ) -> None:
        self.place, self.attempt, self.data = place, attempt, data
        self._request_id, self._path, self._body = request_id, path, body
        self._size_bytes, self._answer_bytes = size_bytes, 0
        conversation = place.conversation
        self._turn_index, self._attempt_number = conversation.turn_index, conversation.attempt
        self._end_before_s = conversation.end_s
        self._reader = reader(attempt.answer)
        self._whole: bytearray | None = None

    def headers(self, upstream: Any, instant_s: float) -> None:
        """Note that the server begins to answer."""
        self.attempt.headers_s, self.attempt.http_status = instant_s, upstream.status
        if "event-stream" not in upstream.headers.get("Content-Type", ""):
            self._whole = bytearray()

    def feed(self, data: bytes, instant_s: float) -> None:
        """Note a piece of the answer."""
        self._answer_bytes += len(data)
        if self.attempt.http_status != 200:
            return
        if self._whole is None:
            self._reader.feed(data, instant_s)
        elif len(self._whole) < _MOST_DOCUMENT_BYTES:
            self._whole += data

    def end(self, instant_s: float) -> None:
        """Note that the answer is whole."""
        attempt = self.attempt
        attempt.end_s = instant_s
        if attempt.http_status != 200:
            is_refused = attempt.http_status in BUSY or (attempt.http_status or 500) < 500
            attempt.status = "rejected" if is_refused else "failed"
            attempt.error = f"http {attempt.http_status}"
            return
        if self._whole is None:
            self._reader.end(instant_s)
        else:
            self._reader.document(bytes(self._whole), instant_s)
            attempt.marks.append("not streamed: all tokens at the end")
        attempt.status, attempt.error = judge(attempt)

    def broke(self, what: str, *, is_begun: bool) -> None:
        """Note that the server went away."""
        attempt = self.attempt
        attempt.status = "failed"
        attempt.error = (
            "closed early: the connection ended before the answer" if is_begun
            else f"connect: {what}"
        )  # fmt: skip

    def row(self, server: Server, *, with_text: bool) -> dict[str, Any]:
        """Return the line of the recording.

        Parameters
        ----------
        server
            Whose key must not be in it.
        with_text
            Whether the text is.
        """
        attempt, messages = self.attempt, messages_of(self._body)
        if not with_text and attempt.error.startswith(("garbage", "error")):
            # What follows is what the server said.
            attempt.error = attempt.error.partition(":")[0]
        attempt.error = server.scrubbed(attempt.error)
        prompt = self._body.get("prompt")
        size = sum([len(text_of(each)) for each in messages])
        size += len(prompt) if isinstance(prompt, str) else 0
        limit = self._body.get("max_tokens", self._body.get("max_completion_tokens"))
        limit = limit if type(limit) is int else None
        counts = counts_of(
            attempt.answer, round(size / _CHARACTERS_PER_TOKEN), limit, doubt_share=float("inf")
        )
        more: dict[str, Any] = {"max_tokens": limit} if limit else {}
        if with_text:
            more["request_text"], more["answer_text"] = messages or prompt, attempt.answer.text
        before_s = self._end_before_s
        return row_of(
            attempt,
            counts,
            request_id=self._request_id,
            session_id=self.place.conversation.session_id,
            turn_index=self._turn_index,
            pause_before_s=0.0 if before_s is None else attempt.submit_s - before_s,
            pause_kind=pause_kind_of(messages) if self._turn_index else "",
            path=self._path,
            request_bytes=self._size_bytes,
            answer_bytes=self._answer_bytes,
            message_count=len(messages),
            is_prefix_break=self.place.is_break,
            attempt=self._attempt_number,
            **more,
        )
