"""Fitted profiles of recorded MLX engines; made by ``python -m calibration.mlx.make``."""
