"""Every rule of ds4-server's scheduler is in a table of ``test_ds4_section_*.py``, with its test.

The list below states the rules of ``ds4_server.c``, ``ds4.c`` and ``ds4_kvstore.c`` (forks of
August and September 2026) once more, one line each: section, paragraph, and a letter for each
statement in it. A row of a table names the rule that it shows, or ``also`` for what follows from
several; its test is in the same file, or the row names the file that has it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

RULES = """
2.1a requests enter one list, first in, first out
2.1b dispatch runs when a request comes
2.1c dispatch runs when a slot finishes
2.2a every idle slot is scored for each job; the first job with an eligible slot is taken
2.2b a job that is bound to a busy slot is skipped
2.2c no limit of the queue, no priority, no ageing
2.3a the score is the longest common prefix with the slot's live tokens
2.3b an empty slot scores 0, ties go to the lowest index
2.3c a bound slot, a visible transcript and an image mismatch have scores of their own
2.3d there is no waiting for the best slot
2.4a older rule: a shared system prompt beats an empty slot
2.4b newer rule: little reuse goes to an empty or stale slot
2.5a a slot is busy from dispatch to the end of the answer
2.5b active requests are never evicted
2.5c --max-active-requests (pull request 930, open)
3.1a first choice: continuation by tool-call id or visible transcript
3.1b all live tokens must be a prefix of the prompt
3.1c otherwise nothing is reused
3.1d GLM, and later pull requests, rewind
3.1e third choice: the key of visible thinking
3.1f fourth choice: a prefix of the rendered text of the live state
3.2a on a miss a slot of at least 512 tokens is saved
3.2b then the longest checkpoint that is a text prefix is loaded
3.2c both take the raw lock, outside the arbiter
3.3a a cold prompt of 512 to 30,000 tokens stops at its anchor for a save
3.3b the anchor is the last user marker before the first assistant marker
3.3c else the length less 32, rounded down to 2,048
3.3d the rest is another sync
3.4a a generation is active from the end of its prompt
3.4b counted after the lock is released, the line is logged and the headers are sent
3.4c until its loop ends
3.5a a token may be followed by a save, at a multiple only
3.5b and not inside a tool call
3.5c it is sampled without any lock
3.5d it is handed over, and streamed after its step
3.5e a slow client keeps its generation active while nothing pends
4.1a the target is the quantum, at most the prompt
4.2a the quantum is 2,048 while no generation is active
4.2b otherwise 128, --mixed-prefill-quantum
4.2c GLM 5.3: at least 1,024
4.2d environment variables until July
4.2e pull request 827: the idle quantum is the prefill cap
4.3a it is read before the wait, both ways
4.3b the first one after the raw lock of the sync, so that simultaneous prompts differ
4.4a a quantum waits while the engine is busy
4.4b while decode pends
4.4c until its turn: the next waiting slot after the last
4.4d of those that wait now
4.4e one quantum each, whatever its size
4.5 a client that never pends keeps the small quantum
4.6a a quantum from 0 is cut into chunks of the cap
4.6b others are cut at multiples of the cap, and never re-align
4.6c a start on the grid is not cut
4.6d quanta that do not divide the cap are cut at every boundary
4.7 fewer than 4 tokens go through the decode graph, one by one
4.8 --prefill-chunk sizes buffers
5.1a the decode worker sleeps until something pends
5.1b if less than what is active pends, it waits 2 ms from its first look
5.1c DS4_SERVER_DECODE_COALESCE_US, 0 to 100,000
5.1d the wait runs during a quantum, too
5.1e then it waits for the engine
5.1f and takes everything that pends at that moment
5.2a prefill cannot slip into the wait
5.2b a generation that does not pend costs each step up to 2 ms
5.3a a waiting prefill enters when a batch is done
5.3b one quantum, one batch; the token gap is their sum
5.3c one batch a quantum, not one a round
5.4a native batches, partial ones, or a loop of solo steps
5.4b a failure in such a loop fails the whole batch
5.4c drafters are off; speculative groups
5.4d a pass of prefill and decode on CUDA tensor parallelism
6.1 claim (600): a decoder has not pended when a quantum ends, and prefill enters again
6.2a a decoder that pends within a quantum runs next
6.2b one that comes late waits for one more
6.2c exception: its own continued save
6.2d exception: saves, loads and the first lock of newcomers starve, not the decoder
6.2e exception: between the end of a prompt and its first pending token
6.3 a log line every 50 tokens hides it
6.4a 601: after a quantum the next turn is decode's
6.4b as soon as a generation is registered
6.4c saves and loads go through the arbiter
6.4d the reservation falls at a decode batch
6.4e at the end of the last generation
6.4f at shutdown
6.4g new risk: a stalled client holds prefill back
7.1a size of a checkpoint
7.1b every save writes the whole prefix
7.2a continued saves: when the length is a multiple, at the end of a chunk
7.2b and at each decoded token
7.2c an unaligned start: at multiples of 20,480
7.2d evict saves, cold saves: 3.2a, 3.3a
7.2e a save at shutdown
7.3a a save inside a quantum lengthens it
7.3b any save stalls everyone
7.4 times of saves and loads
7.5a the score of budget eviction
7.5b at a full disk the smallest dies first
7.6 four weeks of one user
"""
STATED = dict(rule.split(" ", 1) for rule in RULES.strip().splitlines())

NOT_MODELLED = {
    *("2.2b", "2.3c", "2.5c", "3.1a", "3.1e", "3.1f", "3.5b", "4.7"),
    *("5.4b", "5.4c", "5.4d", "6.4f", "7.2e"),
}
"""Each with a word why below the table."""

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("test_ds4_section_*.py"))
ROW = re.compile(r"^\| (also|\d\.\d[a-z]?)(?: (.+?))? \| (.+?) \|$", re.MULTILINE)


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""


def rows(path: Path) -> list[tuple[str, str]]:
    """Return rule and test of each row."""
    return [(rule, test) for rule, _, test in ROW.findall(docstring(path))]


def test_sections_2_to_7_have_a_table() -> None:
    assert [re.findall(r"section_(\d)", path.name) for path in FILES] == [[n] for n in "234567"]


def test_the_rules_are_numbered_once_and_in_order() -> None:
    numbers = [rule.split(" ")[0] for rule in RULES.strip().splitlines()]
    assert numbers == sorted(set(numbers))


def test_every_rule_is_in_a_table() -> None:
    named = {rule for path in FILES for rule, _ in rows(path)}
    assert named - {"also"} == STATED.keys()


def test_what_is_not_modelled_is_declared() -> None:
    declared = {rule for path in FILES for rule, test in rows(path) if test == "not modelled"}
    assert declared == NOT_MODELLED


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_table_names_all_tests_of_its_file(path: Path) -> None:
    """And only tests that exist, there or elsewhere; each row of the table is a row."""
    tree = ast.parse(path.read_text("utf-8"))
    here = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    tests = {test for _, test in rows(path)}
    elsewhere = {test for test in tests if test.endswith(".py")}
    assert tests - elsewhere - {"not modelled"} == {name for name in here if name[:5] == "test_"}
    assert all([len(list(HERE.parent.glob(f"*/{name}"))) == 1 for name in elsewhere])
    lines = [line for line in docstring(path).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(rows(path))
