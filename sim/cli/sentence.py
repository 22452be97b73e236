"""The sentence that opens the screen of ``moesim run``, and the command that closes it."""

from __future__ import annotations

import math

from sim.agent_tables import AgentsClient
from sim.cli.invocation import Invocation
from sim.cli.rows import agent_group, objective_name, spent
from sim.cli.wording import change, number, percent, seconds
from sim.errors import InputError
from sim.headroom import Headroom
from sim.launch_line import flag_of, setting
from sim.levers import MOST_REQUESTS, Lever, Search
from sim.replicated import Replicated

LITTLE = 0.05
MORE_AGENTS = 2


def sentence(run: Replicated, search: Search | None, headroom: Headroom | None) -> str:
    """Return what to do, and what it costs and buys.

    Parameters
    ----------
    run
        What was simulated.
    search
        What changing one setting would do; None when that was interrupted.
    headroom
        Of an open loop.
    """
    scenario, group = run.scenario, agent_group(run.scenario)
    if group and not run.mean(f"{group}task_s.mean") > 0:
        group = None
    if group:
        parts = spent(run, group)
        opening = f"Agents wait {percent(parts['waiting'])} of their task time"
        if any([getattr(client, "stall", None) for client in scenario.clients]):
            opening += " (their own stalls included)"
    else:
        opening = f"A request takes {seconds(run.mean('e2e_s.mean'))}"
        if headroom is not None:
            opening += _load(headroom, run)
    best = search.best if search is not None else None
    if best is None:
        if search is None or not search.tried_count:
            return f"{opening}."
        if group:
            most = max(parts, key=lambda name: parts[name])
            opening += f", most of it goes to {most} ({percent(parts[most])})"
        what = "is worth its pauses" if search.refused else "is sure to gain 2 % or more"
        return f"{opening}: no setting of {scenario.policy.kind} that was tried {what}."
    pause, now = best.pause_s, best.pause_before_s
    text = f"{opening}; {best.key}={best.value} cuts {objective_name(scenario)} by "
    text += f"{percent(best.gain)}{_over(best)}"
    if math.isnan(pause) or not now > 0:
        return f"{text}."
    whose = "their" if best.workload_count > 1 else "the"
    if abs(pause / now - 1) < LITTLE:
        return f"{text} and leaves {whose} longest pause at {seconds(now)}."
    return f"{text} and takes {whose} longest pause from {number(now)} to {seconds(pause)}."


def nothing_done(run: Replicated) -> str:
    """Return what to know of a run in which no request completed; empty for any other."""
    if run.mean("completed_count") > 0:
        return ""
    sent, rejected = run.mean("request_count"), run.mean("rejected_count")
    if not sent > 0:
        return f"No request was sent: nothing was simulated{_unsent(run)}."
    if not rejected > 0:
        return f"None of {number(sent)} requests completed."
    limit = run.scenario.kv.slot_context_tokens
    why = "(kv.capacity_tokens or the memory of the machine)"
    if limit is not None:
        why = f"(kv.slot_context_tokens {limit:,})"
    text = f"needs more tokens than its context may have {why}"
    if rejected == sent:
        whole = "The only request was" if sent == 1 else f"All {number(sent)} requests were"
        return f"{whole} rejected: each {text}."
    return f"None of {number(sent)} requests completed; {number(rejected)} rejected: each {text}."


def _unsent(run: Replicated) -> str:
    limits = {
        f"clients.{client.name}.context_limit_tokens": client.context_limit_tokens
        for client in run.scenario.clients
        if isinstance(client, AgentsClient)
    }
    said = [f"{key} {limit:,}" for key, limit in limits.items()]
    return f"; first prompts may exceed {', '.join(said)}" if said else ""


def _over(lever: Lever) -> str:
    return f" ({lever.workload_count} workloads)" if lever.workload_count > 1 else ""


def lever_line(run: Replicated, search: Search | None) -> str:
    """Return the biggest lever among what was tried."""
    if search is None:
        return "biggest lever: not tried (interrupted)"
    if not search.tried_count:
        count = run.mean("request_count")
        if count > MOST_REQUESTS:
            why = f"{number(count)} requests are too many to repeat unasked"
        else:
            why = f"{run.scenario.policy.kind} has no number to change here"
        return f"biggest lever: not tried ({why})"
    best, refused = search.best, search.refused
    if best is not None:
        changed = flag_of(run.scenario, best.key, best.value) or f"{best.key}={best.value}"
        return f"biggest lever of {search.tried_count}: {changed} ({change(-best.gain)})"
    if refused is None:
        return f"biggest lever: none of {search.tried_count} settings tried is sure to gain 2 %"
    key = refused.key.rpartition(".")[2]
    now, then = number(refused.pause_before_s), seconds(refused.pause_s)
    text = f"biggest lever: {key}={refused.value} ({change(-refused.gain)}), but pause"
    return f"{text} {now} to {then}"


def next_command(run: Replicated, search: Search | None, invocation: Invocation) -> str:
    """Return a command that answers the next question about the same thing.

    Parameters
    ----------
    run, search
        What was simulated and tried.
    invocation
        What was typed.
    """
    settings = run.scenario.policy.settings()
    key, value = None, 0
    if search is not None and search.best is not None:
        key, value = search.best.key, search.best.value
    elif search is None or not search.tried_count:
        for short, now in settings.items():
            if type(now) is int and now > 0 and _can_be(invocation, f"policy.{short}={4 * now}"):
                key, value = f"policy.{short}", 4 * now
                break
    elif more := more_agents(run, invocation):
        return f"{more.command('run')}  # with more agents?"
    if key is None:
        return invocation.command("run", "--explain", "ttft_s")
    words = ["--with", f"{key}={setting(run.scenario, key)},{value}"]
    if run.mean("request_count") > MOST_REQUESTS:
        words += ["--replications", "2"]  # ten of a large run take a while
    return invocation.without(key).command("compare", *words)


def more_agents(run: Replicated, invocation: Invocation) -> Invocation | None:
    """Return the invocation with two agents more; None where agents are not counted."""
    group = agent_group(run.scenario)
    count = next((c.count for c in run.scenario.clients if isinstance(c, AgentsClient)), None)
    if group is None or count is None or len(run.scenario.loops) > 1:
        return None
    changed = f"{group}count={count + MORE_AGENTS}"
    return invocation.with_changes([changed]) if _can_be(invocation, changed) else None


def _load(headroom: Headroom, run: Replicated) -> str:
    where = " in the first workload" if run.count > 1 else ""
    offered, served = number(headroom.offered_per_s), number(headroom.served_per_s)
    if not headroom.keeps_up:
        return f" and the backlog grows{where}: {offered} requests/s offered, {served} served"
    text = f", {offered} requests/s offered and {served} served{where}"
    if headroom.limit_per_s is None:
        return f"{text}: the backlog does not grow"
    if not headroom.offered_per_s > 0:
        return text
    more = percent(headroom.limit_per_s / headroom.offered_per_s - 1)
    limit = number(headroom.limit_per_s)
    return f"{text}: no growing backlog up to about {limit} requests/s ({more} more load)"


def _can_be(invocation: Invocation, text: str) -> bool:
    try:
        invocation.load(text)
    except InputError:
        return False
    return True
