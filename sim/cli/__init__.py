"""The command line. Start-up imports click alone; each command imports what it needs when it runs.

Built-in commands are listed here; further ones come from the entry-point group
``moesim.commands``, whose modules should import click alone, too.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from sim.cli.messages import drop, say
from sim.exit_codes import BAD_INPUT, BUG, INTERRUPTED

GROUP = "moesim.commands"
COMMANDS = {
    "run": "sim.cli.run:run",
    "compare": "sim.cli.compare:compare",
    "validate": "sim.cli.validate:validate",
    "policies": "sim.cli.lists:policies",
    "profiles": "sim.cli.lists:profiles",
    "scenarios": "sim.cli.lists:scenarios",
    "metrics": "sim.cli.lists:metrics",
    "schema": "sim.cli.lists:schema",
    "doctor": "sim.cli.doctor:doctor",
}


class Commands(click.Group):
    """The commands, found by name and imported when asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names: the built-in ones in order of use, then those of other packages."""
        others = {entry.name for entry in entry_points(group=GROUP)} - set(COMMANDS)
        return [*COMMANDS, *sorted(others)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is none of that name."""
        value = COMMANDS.get(cmd_name)
        found = [
            *([EntryPoint(cmd_name, value, GROUP)] if value else []),
            *entry_points(group=GROUP, name=cmd_name),
        ]
        if not found:
            return None
        command: click.Command = found[0].load()
        return _unraw(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command when there is none of that name."""
        name = args[0] if args else ""
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            from difflib import get_close_matches

            near = get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else " 'moesim --help' lists them."
            raise click.UsageError(f"no command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command, and end with one message and an exit code where it cannot."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        code = self._guarded(args, prog_name, complete_var, extra)
        sys.exit(code)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse; a reader that leaves the help unread is no error."""
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:  # before click sees it, which would end with 1
            raise click.exceptions.Exit(_unread()) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run; a reader that leaves is no error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return _unread()

    def _guarded(
        self,
        args: Sequence[str] | None,
        prog_name: str | None,
        complete_var: str | None,
        extra: dict[str, Any],
    ) -> int:
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
            return code if isinstance(code, int) else 0
        except (KeyboardInterrupt, click.Abort):
            say("interrupted; finished files are kept, nothing half-written")
            return INTERRUPTED
        except click.exceptions.NoArgsIsHelpError as error:
            say(error.format_message())
            return BAD_INPUT
        except click.ClickException as error:
            say(f"error: {error.format_message()}")
            return BAD_INPUT
        except BrokenPipeError:
            return _unread()
        except SystemExit as error:
            from sim.cli.blame import policy_line

            if not (said := policy_line(error)):
                raise
            say(f"error: {said}: a policy must not end the program")
            return BAD_INPUT
        except Exception as error:
            message, code = _explained(error)
            say(message)
            return code


def _explained(error: Exception) -> tuple[str, int]:
    """Return message and exit code of an error."""
    from sim.errors import DeadlockError, InputError, InvariantError

    if isinstance(error, InputError):
        return "\n".join(f"error: {problem}" for problem in error.problems), BAD_INPUT
    if isinstance(error, DeadlockError):
        return f"error: the scenario can never finish: {error}", BAD_INPUT
    if isinstance(error, InvariantError):
        from sim.cli.blame import policy_of

        if mine := policy_of(error):
            name = mine.rpartition(":")[2]
            ask = f"This is a fault of the policy {mine}: moesim.check_policy({name}) says more."
            return f"error: {error}\n{ask}", BAD_INPUT
        ask = "This is a fault of moesim or of a policy: please report it with scenario and seed."
        return f"error: {error}\n{ask}", BUG
    from sim.cli.blame import policy_line

    if said := policy_line(error):
        return f"error: {said}", BAD_INPUT
    if isinstance(error, OSError):
        if _is_of_stdout(error):
            return f"error: stdout cannot be written: {error.strerror}", BAD_INPUT
        return f"error: {error}", BAD_INPUT
    if isinstance(error, RecursionError):
        return "error: the input is nested too deeply", BAD_INPUT
    text = f"error: internal error: {type(error).__name__}: {' '.join(str(error).split())}"
    text += "; please report it with the scenario and the seed"
    if os.environ.get("MOESIM_TRACEBACK") == "1":
        import traceback

        text = f"{''.join(traceback.format_exception(error))}{text}"
    return text, BUG


def _is_of_stdout(error: OSError) -> bool:
    """Return whether an error is of stdout, a full disk for instance; then drop what is left."""
    if error.filename is not None:
        return False
    try:
        sys.stdout.flush()
    except OSError:
        drop(sys.stdout)
        return True
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _unread() -> int:
    """Drop what is left to write: the reader (`| head`) has gone, which is no error."""
    drop(sys.stdout)
    return 0


def _unraw(command: click.Command) -> click.Command:
    """Let click see the mark that keeps an example's lines apart: raw docstrings spell it out."""
    if command.help:
        command.help = command.help.replace("\\b\n", "\b\n")
    return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="moesim", message="moesim %(version)s")
def cli() -> None:
    r"""Simulate the scheduler of an LLM server: what a setting costs and what it buys.

    \b
    Example:
      moesim run three-agents
      moesim compare three-agents --with policy.mixed_quantum_tokens=128,2048
    """


_unraw(cli)


def main() -> None:
    """Run the command line."""
    cli(prog_name="moesim")
