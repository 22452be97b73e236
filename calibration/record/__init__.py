"""Recordings of real servers: driven by the clients of a scenario, or watched in between.

A scenario's own clients run on a clock of real time (`world`), their prompts become messages
(`text`), each attempt of a request is one HTTP exchange (`attempt`) whose stream is read (`stream`,
`usage`) and kept as one line (`rows`, `recording_file`). `proxy` does the same for an agent.
"""
