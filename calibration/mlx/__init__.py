"""Real MLX engines: what their logs say, and whether the simulator does the same.

Read in this order: `calibration.mlx.log` (recorded runs of mlx_lm.server, tick by tick) and
`calibration.mlx.sequence` (the policy fed with recorded insertions).
"""
