"""Pictures of results, one module a figure: ``data() -> frame`` and ``draw(frame, axes)``."""
