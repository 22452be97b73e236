"""Speed of the simulator, against bare simpy timeouts timed in the same run; `make bench`.

Nothing here gates: the numbers depend on the machine, the ratio much less.
"""

# ruff: noqa: T201
from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

import simpy

SIZES = (1_000, 10_000, 100_000)
TIMEOUTS = 200_000


def best_of(times: int, measure: Callable[[], float]) -> float:
    """Return the least of several measurements: what disturbs only makes slower."""
    return min(measure() for _ in range(times))


def timeout_s() -> float:
    """Return seconds of one bare simpy timeout: one process that waits again and again."""

    def wait(env: simpy.Environment) -> Generator[simpy.Event, Any, None]:
        for _ in range(TIMEOUTS):
            yield env.timeout(1)

    env = simpy.Environment()
    env.process(wait(env))
    start = time.perf_counter()
    env.run()
    return (time.perf_counter() - start) / TIMEOUTS


def open_loop(request_count: int) -> Any:
    """Return the shipped scenario with another number of requests."""
    from sim.loading import load_scenario

    return load_scenario("open-loop", [f"clients.arrivals.request_count={request_count}"])


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def measure(request_count: int) -> dict[str, float]:
    """Time one size in this process."""
    from sim.metrics import summary
    from sim.simulation import simulate

    scenario = open_loop(request_count)
    simulate(open_loop(100), recording="summary")  # imports and caches
    before = peak_bytes()
    results: Any = None

    def run_s() -> float:
        nonlocal results
        start = time.perf_counter()
        results = simulate(scenario, recording="summary")
        return time.perf_counter() - start

    first_s = run_s()
    grown = peak_bytes() - before
    repeats = 1 if request_count > 20_000 else 3
    simulation_s = min(first_s, best_of(repeats - 1, run_s)) if repeats > 1 else first_s
    bare_s = best_of(3, timeout_s)
    start = time.perf_counter()
    summary(results)
    metrics_s = time.perf_counter() - start
    return {
        "request_count": request_count,
        "requests_per_s": request_count / simulation_s,
        "timeouts_per_request": simulation_s / request_count / bare_s,
        "timeout_ns": bare_s * 1e9,
        "runs_per_request": results.counts["run_count"] / request_count,
        "decisions_per_request": results.counts["decide_count"] / request_count,
        "bytes_per_request": grown / request_count,
        "metrics_s": metrics_s,
    }


def events_per_request(request_count: int = 1_000) -> float:
    """Count what is put into the queue of the environment."""
    from sim.simulation import simulate

    schedule, count = simpy.Environment.schedule, 0

    def counted(self: simpy.Environment, *args: Any, **keywords: Any) -> None:
        nonlocal count
        count += 1
        schedule(self, *args, **keywords)

    simpy.Environment.schedule = counted  # type: ignore[method-assign]
    try:
        simulate(open_loop(request_count), recording="summary")
    finally:
        simpy.Environment.schedule = schedule  # type: ignore[method-assign]
    return count / request_count


def start_up_s() -> float:
    """Return seconds from nothing to the help text."""

    def help_s() -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "moesim", "--help"], check=True, capture_output=True)
        return time.perf_counter() - start

    return best_of(3, help_s)


def decisions(scenario_name: str) -> dict[str, tuple[int, float]]:
    """Return calls of decide and seconds, with fast-forward on and off."""
    from sim.loading import load_scenario
    from sim.simulation import simulate

    found = {}
    for mode, on in (("on", True), ("off", False)):
        start = time.perf_counter()
        results = simulate(load_scenario(scenario_name), fast_forward=on, recording="summary")
        found[mode] = results.counts["decide_count"], time.perf_counter() - start
    return found


def main() -> None:
    """Print everything; each size runs in a process of its own, so that its memory is its own."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]))))
        return
    print("open-loop: Poisson 2/s, 2,000 prompt and 200 output tokens, fused budget 512")
    print(f"{'requests':>9} {'requests/s':>11} {'in timeouts':>12} {'runs':>6} {'decide':>7} "
          f"{'bytes/request':>14} {'metrics s':>10}")  # fmt: skip
    row: dict[str, float] = {}
    for size in SIZES:
        command = [sys.executable, __file__, str(size)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        row = json.loads(done.stdout)
        print(f"{size:>9,} {row['requests_per_s']:>11,.0f} {row['timeouts_per_request']:>12.0f} "
              f"{row['runs_per_request']:>6.2f} {row['decisions_per_request']:>7.2f} "
              f"{row['bytes_per_request']:>14,.0f} {row['metrics_s']:>10.2f}")  # fmt: skip
    print(f"one bare simpy timeout: {row['timeout_ns']:.0f} ns (limit 150 a request, aim 90)")
    print(f"events of the environment per request: {events_per_request():.1f}")
    print(f"start-up (moesim --help): {start_up_s():.2f} s")
    for name in ("three-agents", "one-agent"):
        (on, on_s), (off, off_s) = decisions(name).values()
        print(f"{name}: {on:,} decisions with fast-forward, {off:,} without ({off / on:.0f} times "
              f"fewer); {on_s:.2f} s against {off_s:.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()
