"""The declared tables of results: every column with its type, unit and meaning.

Frames, files and documentation are built from this one table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column of one table.

    Parameters
    ----------
    table, name
        Where it is.
    dtype
        ``float64``; ``int64``; ``Int64`` for whole numbers that may be missing; ``str``.
    unit
        ``s``, ``tokens``, ``1`` for counts and indices, empty for text.
    meaning
        What it is, in a sentence.
    """

    table: str
    name: str
    dtype: str
    unit: str
    meaning: str


def _columns(table: str, *rows: tuple[str, str, str, str]) -> tuple[Column, ...]:
    return tuple([Column(table, *row) for row in rows])


COLUMNS: tuple[Column, ...] = (
    *_columns(
        "requests",
        ("request_id", "int64", "1", "Id, in order of submission."),
        ("client", "str", "", "Name of the client group."),
        ("agent_index", "int64", "1", "Agent inside the group."),
        ("session_id", "str", "", "Conversation that the request belongs to."),
        ("turn_index", "int64", "1", "Request of the session, from 0."),
        ("submit_s", "float64", "s", "Submission."),
        ("admit_s", "float64", "s", "First admission by the policy; missing if never."),
        ("start_s", "float64", "s", "Start of the first work that advances the request."),
        ("first_token_s", "float64", "s", "First token."),
        ("last_token_s", "float64", "s", "Last token so far; the last one if completed."),
        ("finish_s", "float64", "s", "Completion; missing for rejected and unfinished requests."),
        ("prompt_tokens", "int64", "tokens", "Whole prompt."),
        ("cached_tokens", "int64", "tokens", "Part of the prompt found in the KV cache."),
        ("restored_tokens", "int64", "tokens", "Part of it that came from a checkpoint on disk."),
        ("new_prefill_tokens", "int64", "tokens", "Prompt tokens prefilled, the first time."),
        ("output_tokens", "int64", "tokens", "Tokens of the answer so far."),
        ("recomputed_tokens", "int64", "tokens", "Tokens lost to preemptions, prefilled again."),
        ("context_tokens", "int64", "tokens", "Tokens in the KV cache at the end."),
        ("slot_index", "Int64", "1", "Slot; missing for engines without slots."),
        ("status", "str", "", "completed, rejected or unfinished."),
        ("pause_before_s", "float64", "s", "Pause of the client before the submission."),
        ("pause_kind", "str", "", "tool, human or empty."),
        ("miss_cause", "str", "", "Why its slot held nothing for it (see cache_miss_count)."),
        ("own_prefill_s", "float64", "s", "Duration of all works with a prefill row of it."),
        ("own_decode_s", "float64", "s", "Duration of all works with a decode row of it."),
        ("worst_gap_s", "float64", "s", "Largest gap between two tokens; missing below two."),
        ("preemption_count", "int64", "1", "How often it lost its KV."),
        ("busy_before_submit_s", "float64", "s", "Time of all works before the submission."),
        ("busy_before_finish_s", "float64", "s", "Time of all works before the completion."),
    ),
    *_columns(
        "works",
        ("work_index", "int64", "1", "In order of execution."),
        ("kind", "str", "", "prefill, decode or mixed."),
        ("begin_s", "float64", "s", "Start."),
        ("end_s", "float64", "s", "End, when its tokens are handed over."),
        ("prefill_tokens", "int64", "tokens", "Prompt tokens of all its prefill rows."),
        ("decode_rows", "int64", "1", "Requests that get one token."),
        ("launch_count", "int64", "1", "GPU launches: one, and one for each cut of a chunk."),
    ),
    *_columns(
        "rows",
        ("work_index", "int64", "1", "Work."),
        ("request_id", "int64", "1", "Request in it."),
        ("prefill_tokens", "int64", "tokens", "Prompt tokens; 0 for a decode row."),
    ),
    *_columns(
        "tokens",
        ("request_id", "int64", "1", "Request."),
        ("token_index", "int64", "1", "Token of the answer, from 0."),
        ("instant_s", "float64", "s", "When it was handed over."),
    ),
    *_columns(
        "jobs",
        ("kind", "str", "", "sync, load, or why a checkpoint was saved: evict, cold, continued."),
        ("request_id", "int64", "1", "Request that waited for it."),
        ("begin_s", "float64", "s", "Start."),
        ("end_s", "float64", "s", "End."),
        ("size_bytes", "int64", "bytes", "Written or read."),
    ),
    *_columns(
        "preemptions",
        ("request_id", "int64", "1", "Request that lost its KV."),
        ("begin_s", "float64", "s", "When."),
        ("end_s", "float64", "s", "Next admission; missing if never."),
        ("lost_tokens", "int64", "tokens", "Tokens in the KV cache that were lost."),
    ),
    *_columns(
        "recomputes",
        ("request_id", "int64", "1", "Request that prefills again after a preemption."),
        ("begin_s", "float64", "s", "Start of the first work of it."),
        ("end_s", "float64", "s", "Next token."),
    ),
    *_columns(
        "executor",
        ("client", "str", "", "Client group; empty for all works together."),
        ("kind", "str", "", "prefill, decode or mixed."),
        ("busy_s", "float64", "s", "Time of the works with a row of the group, each once."),
        ("work_count", "int64", "1", "Number of these works."),
        ("launch_count", "int64", "1", "Their launches."),
    ),
    *_columns(
        "gaps",
        ("client", "str", "", "Client group."),
        ("is_warm", "int64", "1", "1 if the request was submitted after the warm-up, else 0."),
        ("lower_s", "float64", "s", "Gaps of the bin are above it (a gap of 0 has both edges 0)."),
        ("upper_s", "float64", "s", "Gaps of the bin are not above it."),
        ("gap_count", "int64", "1", "Gaps between consecutive tokens of one request."),
    ),
)
"""Every column of every table."""

TABLES: dict[str, dict[str, Column]] = {}
for _column in COLUMNS:
    TABLES.setdefault(_column.table, {})[_column.name] = _column
