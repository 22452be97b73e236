"""Whether a run of these clients could ever finish, and be held in memory.

The limits are round numbers well above what anybody would wait for. They rest on three measured
figures of this simulator (one core): 1.1 kB and 0.4 ms for each request of an agent, 0.1 us for
each token of an answer, 0.4 us for each work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sim.agent_tables import AgentsClient
from sim.client_tables import ArrivalsClient, ProbeClient
from sim.distributions import Quantity
from sim.lines import Key

MOST_DRAWN_REQUESTS = 2_000_000
"""Of all agents: drawn before the run begins, 2 GB and a quarter of an hour."""
MOST_OUTPUT_TOKENS = 10**10
"""Of all answers together: a quarter of an hour."""
MOST_PROMPT_TOKENS = 10**11
"""Of all new tokens together: in quanta of 128, five minutes."""

_DRAWS = 1000


def faults_of_size(clients: tuple[Any, ...]) -> Iterator[tuple[Key, str]]:
    """Yield the clients that ask for too much, as key and message.

    Parameters
    ----------
    clients
        The tables of ``[[clients]]``; streams and replays are not counted.
    """
    totals = {"requests": 0.0, "output tokens": 0.0, "prompt tokens": 0.0}
    limits = (MOST_DRAWN_REQUESTS, MOST_OUTPUT_TOKENS, MOST_PROMPT_TOKENS)
    for index, client in enumerate(clients):
        key: Key = ("clients", index)
        for (what, before), size, limit in zip(totals.items(), _sizes(client), limits, strict=True):
            totals[what] = before + size
            if before <= limit < totals[what]:
                yield (
                    key,
                    f"asks for about {size:,.0f} {what}, which makes {totals[what]:,.0f}; a run "
                    f"can hold and finish {limit:,}: fewer or smaller requests",
                )


def _sizes(client: Any) -> tuple[float, float, float]:
    """Return expected requests to draw, output tokens and new prompt tokens."""
    if isinstance(client, ProbeClient):
        prompt, output = _mean(client.prompt_tokens), _mean(client.output_tokens)
        return 0.0, client.count * output, client.count * prompt
    if isinstance(client, ArrivalsClient):  # kept in arrays, and limited by its own key
        prompt, output = _mean(client.prompt_tokens), _mean(client.output_tokens)
        return 0.0, client.request_count * output, client.request_count * prompt
    return _agents(client) if isinstance(client, AgentsClient) else (0.0, 0.0, 0.0)


def _agents(client: AgentsClient) -> tuple[float, float, float]:
    sessions = client.count * _mean(client.sessions)
    turns = sessions * _mean(client.turns)
    requests, output = turns, turns * _mean(client.output_tokens)
    prompt = sessions * _mean(client.first_prompt_tokens) + turns * _mean(client.result_tokens)
    if (team := client.sub_agents) is not None:
        members = turns * team.turn_share * _mean(team.count)
        steps = members * _mean(team.turns)
        requests += steps
        output += steps * _mean(team.output_tokens)
        prompt += members * _mean(team.first_prompt_tokens) + steps * _mean(team.result_tokens)
    if (helpers := client.helpers) is not None:
        sent = turns * helpers.turn_share
        requests += sent
        output += sent * _mean(helpers.output_tokens)
        prompt += sent * _mean(helpers.prompt_tokens)
    return requests, output, prompt


def _mean(quantity: Quantity) -> float:
    return float(np.mean(quantity.sample(np.random.default_rng(1), _DRAWS)))
