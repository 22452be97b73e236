"""Experts of a mixture: routing distributions and how many experts a set of tokens touches."""

from __future__ import annotations

from sim.experts.routing import Routing, SharedRouting, build_routing, lognormal, uniform

__all__ = ["Routing", "SharedRouting", "build_routing", "lognormal", "uniform"]
