"""Real MLX engines: what was recorded of them, profiles, and whether the simulator does the same.

Read in this order: `calibration.mlx.log` (server runs, tick by tick) and `calibration.mlx.sequence`
(the policy fed with recorded insertions); `calibration.mlx.ticks` (every measured tick in one
table), `calibration.mlx.padded_fit`, `calibration.mlx.admission` and `calibration.mlx.experts`
(what they cost), `calibration.mlx.recipes`, `calibration.mlx.documents` and `calibration.mlx.make`
(profiles); `calibration.mlx.own` (a profile of your own engine); `calibration.mlx.runs` (server
runs simulated from their clients alone).

With an installed engine (extra ``mlx``): `calibration.mlx.installed`, `calibration.mlx.small_model`
and `calibration.mlx.loaded` (models), `calibration.mlx.engine` and `calibration.mlx.check` (is the
installed scheduler our policy), `calibration.mlx.served` (a server that logs its ticks),
`calibration.mlx.bench` and `calibration.mlx.bench_files` (step
measurements), `calibration.mlx.commands` (the command line).
"""
