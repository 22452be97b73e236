"""The simulator. A reading guide, from file to report.

1. ``scenario`` is a frozen description of a run, ``loading`` reads it from TOML; ``profiles`` holds
   the fitted numbers of an engine. ``simulation.simulate(scenario, seed)`` builds a run of them.
2. ``clients`` submit requests (``request``) through the ``world`` and react to what they get;
   ``kv`` knows which prefixes the engine still holds.
3. ``engine`` is the loop, the only place where simulated time passes. It asks a policy
   (``policies``) for a plan on what a ``view`` shows, lets ``layout`` turn the plan into a ``run``
   priced by a ``cost``, sleeps until the run ends, and lets the ``ledger`` apply it. ``lock`` is
   the raw lock beside the policy, ``audit`` checks that plans keep their promise.
4. ``recorder`` notes what happened, ``results`` holds it as declared tables, ``metrics`` are pure
   functions of them, the same for simulated and recorded runs.
5. ``experiment`` runs replications and paired comparisons; ``cli`` is the command line.

``experts`` has routing distributions and the number of distinct experts that tokens touch.
"""
