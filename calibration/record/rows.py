"""One attempt as one line of a recording."""

from __future__ import annotations

from typing import Any

from calibration.record.attempt import Attempt
from calibration.record.text import Lengths
from calibration.record.usage import Counts
from sim.request import Request


def row_of(
    attempt: Attempt,
    counts: Counts,
    /,
    *,
    request_id: int,
    session_id: str | None,
    turn_index: int,
    pause_before_s: float,
    pause_kind: str,
    **more: Any,
) -> dict[str, Any]:
    """Return the line of an attempt.

    Parameters
    ----------
    attempt, counts
        What became of it.
    request_id, session_id, turn_index
        Which it is; without a session it is one of its own.
    pause_before_s
        Since the end of the last answer of its session that had a token.
    pause_kind
        tool, human or empty.
    more
        Further keys.
    """
    first = counts.token_s[0] if counts.token_s else None
    status, error = attempt.status, attempt.error
    if status == "completed" and not counts.output_tokens:
        status, error = "failed", "empty: an answer without a token"
    row: dict[str, Any] = {
        "request_id": request_id,
        "session_id": session_id,
        "turn_index": turn_index,
        "submit_s": round(attempt.submit_s, 6),
        "prompt_tokens": counts.prompt_tokens,
        "cached_tokens": counts.cached_tokens,
        "output_tokens": counts.output_tokens,
        "first_token_s": first[0] if isinstance(first, list) else first,
        "finish_s": _rounded(attempt.end_s),
        "status": status,
        "pause_before_s": round(max(pause_before_s, 0.0), 6),
        "pause_kind": pause_kind,
        "finish_reason": attempt.answer.finish_reason,
        "headers_s": _rounded(attempt.headers_s),
        **more,
        "tokens_from": counts.basis,
    }
    if attempt.http_status is not None:
        row["http_status"] = attempt.http_status
    if error:
        row["error"] = error
    if marks := [*attempt.marks, *counts.marks]:
        row["marks"] = marks
    if attempt.answer.progress:
        row["progress_s"] = [[round(at, 6), done] for at, done in attempt.answer.progress]
    row["token_s"] = counts.token_s
    return row


def parts_of(request: Request, prompt_tokens: int, lengths: Lengths) -> list[list[Any]]:
    """Return the prompt by its chat template; the last part takes what the others leave.

    Parameters
    ----------
    request
        Of a client.
    prompt_tokens
        As the server counts.
    lengths
        Of its tokenizer: the parts before the last are as long in every turn.
    """
    parts: list[list[Any]] = []
    left = prompt_tokens
    for index, (role, tokens) in enumerate(request.parts):
        size = round(lengths.words_of(tokens) * lengths.word_tokens + lengths.message_tokens)
        size = left if index == len(request.parts) - 1 else min(size, left)
        left -= size
        if size:
            parts.append([role, size])
    return parts


def _rounded(instant_s: float | None) -> float | None:
    return None if instant_s is None else round(instant_s, 6)
