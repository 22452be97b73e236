"""Books of our own: a second count of everything that an engine does.

`Books` follow a run as an observer: what each request holds, when it may run, what each work
must cost. They share no code with the engine, so that a fault of the engine, of the layout or of a
policy shows as a broken law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.cost import Cost
from sim.disk_books import DiskBooks, waits_for_a_job
from sim.errors import DeadlockError
from sim.request import Job, Request, Work
from sim.run import Run
from sim.units import FOREVER_PS, PS_PER_S, to_ps
from sim.view import View
from sim.world import EngineOptions, World

WORK_LIMIT = 50_000
"""A small world that needs more works does not end."""


@dataclass(slots=True)
class _Book:
    left: int
    context: int
    ready_ps: int
    output: int
    generated: int = 0
    due_ps: int = 0
    """When it could go on without the job that it waits for."""
    admitted: bool = False
    started: bool = False


class Books:
    """An observer that keeps books of its own, and everything that two runs must agree on.

    Parameters
    ----------
    options, cost
        As the engine has them; the cost must be an object of its own if pricing changes it.

    Attributes
    ----------
    broken
        Broken laws, in words.
    works
        (begin, end, ((request, tokens), ...), (request, ...)) of each work.
    tokens
        Instants of the tokens of each request.
    world
        Set before the run.
    """

    def __init__(self, options: EngineOptions, cost: Cost) -> None:
        self.options, self.cost = options, cost
        self.world: World | None = None
        self.broken: list[str] = []
        self.works: list[tuple[int, int, Any, Any]] = []
        self.tokens: dict[int, list[int]] = {}
        self.jobs: list[tuple[str, int, int, int]] = []
        self.requests: dict[int, Request] = {}
        self.ends: list[tuple[int, str, int, int, int]] = []
        self.busy_ps = 0
        self._books: dict[int, _Book] = {}
        self._free_ps, self._after_prefill = 0, False
        options = self.options
        self._capacity = FOREVER_PS if (c := options.kv_capacity_tokens) is None else c
        disk = options.disk
        self._disk = None if disk is None else DiskBooks(disk, self.require)
        self._host_ps = to_ps(options.host_gap_s)
        self._chunk_ps = to_ps(options.chunk_gap_s)

    def require(self, holds: bool, law: str, *facts: object) -> None:
        """Note a law that does not hold."""
        if not holds:
            self.broken.append(f"{law} {facts}")

    # -- what the engine tells ---------------------------------------------------------------

    def submitted(self, request: Request) -> None:
        """Open a book."""
        self.requests[request.request_id] = request
        self.tokens[request.request_id] = []
        self._books[request.request_id] = _Book(
            request.left_tokens, request.context_tokens, request.submit_ps, request._output_left
        )
        whole = request.left_tokens + request.context_tokens
        self.require(whole == request.prompt_tokens, "cached and new tokens are the prompt", whole)

    def admitted(self, request: Request) -> None:
        """Note that a request may run from now on."""
        book = self._books[request.request_id]
        self.require(not book.admitted, "nobody is admitted twice", request.request_id)
        book.admitted = True
        if not book.started:  # a slot decides only now what is cached
            book.started = True
            book.left, book.context = request.left_tokens, request.context_tokens
            whole = book.left + book.context
            self.require(whole == request.prompt_tokens, "cached and new are the prompt", whole)
            if waits_for_a_job(request):
                book.ready_ps = FOREVER_PS
            if self._disk is not None:
                self._disk.admitted(request)
        slots = [row.slot_index for row in self._view().running if row.slot_index >= 0]
        self.require(len(slots) == len(set(slots)), "a slot holds one request", slots)

    def preempted(self, request: Request) -> None:
        """Note that a request lost its KV; the token sampled last was not in it."""
        book = self._books[request.request_id]
        unfed = not book.left and bool(book.generated) and self.options.first_token == "prefill"
        book.left, book.context, book.admitted = book.left + book.context + unfed, 0, False
        self.require(request.left_tokens == book.left, "recompute", request.left_tokens, book.left)
        book.left = request.left_tokens
        if self._disk is not None:
            self._disk.preempted(request)
        if book.ready_ps == FOREVER_PS:  # its save is pointless now
            book.ready_ps = request.ready_ps

    def ran(self, run: Run, count: int, works: Sequence[Work]) -> None:
        """Book every work of a run."""
        if len(self.works) + count > WORK_LIMIT:
            raise DeadlockError(f"a small world runs {WORK_LIMIT} works and does not end")
        for k in range(count):
            self._work(works[k % run.length], run.work_begin_ps(k), run.end_ps(k + 1))
        for j in range(min(run.length, count)):
            self.busy_ps += run.spent_ps(j, count // run.length + (j < count % run.length))
        # The books let a request go with its last token, the engine tells of the run before that.
        done = [row for row in self._view().running if row._output_left <= 0]
        held = sum([book.context for book in self._books.values() if book.admitted])
        held += sum([row.context_tokens for row in done])
        free = self._view().kv_free_tokens
        self.require(free == self._capacity - held, "memory", free, self._capacity - held)

    def job_done(self, job: Job, end_ps: int) -> None:
        """Book a save or a load."""
        row, book = job.request.request_id, self._books[job.request.request_id]
        self.require(job.begin_ps >= self._free_ps, "one at a time", row, job.begin_ps)
        self.require(book.ready_ps == FOREVER_PS, "nobody runs before its job", row, job.kind)
        self.require(
            end_ps - job.begin_ps == self._job_ps(job, book.context), "duration", row, job.kind
        )
        self.jobs.append((job.kind, row, job.begin_ps, end_ps))
        self.busy_ps += end_ps - job.begin_ps
        self._free_ps = end_ps
        if job.then is None:
            book.ready_ps = max(end_ps, book.due_ps)

    def _job_ps(self, job: Job, context: int) -> int:
        return 0 if self._disk is None else self._disk.job_ps(job, context)

    def finished(self, request: Request) -> None:
        """Close a book."""
        row, book = request.request_id, self._books[request.request_id]
        self.ends.append(
            (row, request.status, request.admit_ps, request.first_token_ps, request.finish_ps)
        )
        if request.status == "rejected":
            return
        if self._disk is not None:
            self._disk.finished(request)
        tokens = self.tokens[row]
        self.require(request.first_token_ps == (tokens or [-1])[0], "first token", row)
        self.require(request.generated_tokens == len(tokens), "tokens", row, len(tokens))
        self.require(request.context_tokens == book.context, "context", row, book.context)
        if request.status == "completed":
            self.require(len(tokens) == book.output, "answer", row, len(tokens), book.output)
            self.require(request.finish_ps == tokens[-1], "finish", row, request.finish_ps)
            held = request.prompt_tokens + len(tokens) - (self.options.first_token == "prefill")
            self.require(book.context == held, "all but the last token held", row, book.context)
            self.require(0 <= request.submit_ps <= request.admit_ps, "admitted later", row)

    # -- the books ---------------------------------------------------------------------------

    def _view(self) -> View:
        assert self.world is not None
        return self.world.engine.view

    def _work(self, work: Work, begin_ps: int, end_ps: int) -> None:
        chunks = [(row.request_id, tokens) for row, tokens in work.prefill]
        decode = [row.request_id for row in work.decode]
        self.works.append((begin_ps, end_ps, tuple(chunks), tuple(decode)))
        at = begin_ps / PS_PER_S
        self.require(begin_ps >= self._free_ps, "one at a time", at)
        rows = [*[row for row, _ in chunks], *decode]
        self.require(bool(rows), "a work has rows", at)
        self.require(len(rows) == len(set(rows)), "a request is once in a work", at, rows)
        books = {row: self._books[row] for row in rows}
        for row, book in books.items():
            self.require(book.admitted, "only admitted requests run", at, row)
            self.require(begin_ps >= book.ready_ps, "no work before its rows are ready", at, row)
        for row, tokens in chunks:
            self.require(0 < tokens <= books[row].left, "no token twice", at, row, tokens)
        for row in decode:
            self.require(not books[row].left, "decode follows the prompt", at, row)
        alone, padded = self.cost.minds_ends, self.cost.pads_rows
        contexts = [books[row].context for row in decode]
        price_ps = self.cost.price_ps(
            [
                (books[row].context, tokens)
                for row, tokens in chunks
                if not (alone and books[row].left == tokens == 1)
            ],
            len(decode),
            len(decode) * max(contexts, default=0) if padded else sum(contexts),
            self._after_prefill,
        )
        if alone:
            price_ps += self.cost.ends_ps(
                [books[row].context for row, tokens in chunks if books[row].left == tokens],
                [
                    books[row].context
                    for row in decode
                    if books[row].generated == books[row].output - 1
                ],
            )
        self.require(end_ps - begin_ps == price_ps, "price", at, end_ps - begin_ps, price_ps)
        for row, tokens in chunks:
            book = books[row]
            book.left, book.context = book.left - tokens, book.context + tokens
            book.ready_ps = end_ps + self._chunk_ps
            if not book.left and self.options.first_token == "prefill":
                self._token(row, book, end_ps)
            self._save_prompt(row, book, tokens, end_ps)
        for row in decode:
            books[row].context += 1
            self._token(row, books[row], end_ps)
            self._save_answer(row, books[row])
        self._free_ps, self._after_prefill = end_ps, bool(chunks)

    def _token(self, row: int, book: _Book, end_ps: int) -> None:
        self.tokens[row].append(end_ps)
        book.generated += 1
        gaps_ps = self.requests[row]._gaps_ps
        book.ready_ps = end_ps + (gaps_ps[book.generated - 1] if gaps_ps else self._host_ps)
        if book.generated >= book.output:
            book.admitted = False

    def _save_prompt(self, row: int, book: _Book, tokens: int, end_ps: int) -> None:
        if self._disk is None:
            return
        request = self.requests[row]
        if book.left and not book.context % (self._disk.settings.interval_tokens or 1):
            book.ready_ps = end_ps  # the rest of a quantum goes on
        if self._disk.prefilled(request, book.generated, book.context, tokens):
            book.due_ps, book.ready_ps = book.ready_ps, FOREVER_PS  # until its save is done

    def _save_answer(self, row: int, book: _Book) -> None:
        if self._disk is None or book.generated >= book.output:
            return
        if self._disk.decoded(self.requests[row], book.generated, book.context):
            book.due_ps, book.ready_ps = book.ready_ps, FOREVER_PS

    def close(self) -> None:
        """Check what must hold at the end."""
        assert self.world is not None
        engine, view = self.world.engine, self._view()
        completed = [request.status != "unfinished" for request in self.requests.values()]
        if all(completed):
            self.require(not view.running and not view.waiting, "nobody is left")
            self.require(view.kv_free_tokens == self._capacity, "memory comes back")
        self.require(engine.work_count == len(self.works), "count of works", engine.work_count)
        spans = [(begin, end) for begin, end, _, _ in self.works]
        spans += [(begin, end) for *_, begin, end in self.jobs]
        self.require(sum([end - begin for begin, end in spans]) == self.busy_ps, "busy time")
        ended = sorted([row for row, *_ in self.ends])
        self.require(ended == sorted(self.requests), "every request ends once", ended)

    def outcome(self) -> dict[str, list[Any]]:
        """Return what two runs of one case must agree on."""
        return {
            "works": self.works,
            "jobs": self.jobs,
            "tokens": sorted(self.tokens.items()),
            "ends": sorted(self.ends),
        }
