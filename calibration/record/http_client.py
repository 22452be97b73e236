"""The HTTP library, found lazily, and the address and key of a server."""

from __future__ import annotations

import importlib
import ipaddress
import os
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sim.errors import InputError, Problem

CONNECT_S = 10.0
_LEAST_SECRET = 4


def http_library() -> Any:
    """Return aiohttp.

    Raises
    ------
    InputError
        It is not installed.
    """
    try:
        return importlib.import_module("aiohttp")
    except ImportError as error:
        message = f"{error}; install the extra: pip install 'moesim[record]'"
        raise InputError(Problem("record", "", message)) from error


@dataclass(frozen=True)
class Server:
    """A server and how to reach it.

    Parameters
    ----------
    base
        Its address, with ``/v1`` where that was given.
    key
        API key; never written, not even where the server sends it back.
    """

    base: str
    key: str = field(default="", repr=False)

    def at(self, path: str) -> str:
        """Return the address of ``/v1`` and a path."""
        base = self.base if self.base.endswith("/v1") else f"{self.base}/v1"
        return base + path

    def headers(self) -> dict[str, str]:
        """Return what goes with every request."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def scrubbed(self, text: str) -> str:
        """Return a text without the key."""
        return text.replace(self.key, "***") if len(self.key) >= _LEAST_SECRET else text

    @property
    def is_open(self) -> bool:
        """Whether the key would leave this machine unencrypted."""
        parts = urlsplit(self.base)
        return bool(self.key) and parts.scheme == "http" and not is_loopback(parts.hostname or "")


def read_server(url: str, key_name: str | None) -> Server:
    """Return the server of ``--url`` and ``--key-env``.

    Parameters
    ----------
    url
        ``http`` or ``https``, without a user, a query or a fragment.
    key_name
        Environment variable that holds the key.

    Raises
    ------
    InputError
        The address is none, or the variable is empty.
    """
    try:
        parts = urlsplit(url)
        is_wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        is_wrong = True
    if is_wrong:
        message = f"{url[:100]!r}; expected an address like http://127.0.0.1:8080"
        raise InputError(Problem("--url", "", message))
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        message = "must hold no user, password or query: keys come from the environment (--key-env)"
        raise InputError(Problem("--url", "", message))
    key = ""
    if key_name is not None:
        key = os.environ.get(key_name, "").strip()
        if len(key) < _LEAST_SECRET or not key.isprintable() or not key.isascii():
            message = "the environment variable of that name holds no key"
            raise InputError(Problem("--key-env", key_name[:100], message))
    return Server(url.rstrip("/"), key)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine and nobody else can reach it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
