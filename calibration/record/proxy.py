"""A proxy on loopback between an agent and a server, which notes sizes and times of what passes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from calibration.record.attempt import Attempt
from calibration.record.conversations import Conversations, digest
from calibration.record.http_client import CONNECT_S, Server, http_library, is_loopback
from calibration.record.messages_stream import MessagesReader
from calibration.record.stream import ChatReader
from calibration.record.watched import Watched

_READERS: dict[str, type[ChatReader]] = {
    "/chat/completions": ChatReader,
    "/completions": ChatReader,
    "/messages": MessagesReader,
}
_NOT_PASSED_ON = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade",
}  # fmt: skip
_MOST_BODY_BYTES = 1 << 28


@dataclass(frozen=True)
class ProxyOrders:
    """What the options of the command say.

    Parameters
    ----------
    host, port
        Where to listen; port 0 takes a free one.
    with_text
        Whether prompts and answers are kept, too.
    ask_usage
        Whether requests that do not ask for usage are made to.
    """

    host: str
    port: int
    with_text: bool = False
    ask_usage: bool = False


class Proxy:
    """Passes requests on and answers back, byte by byte.

    Parameters
    ----------
    server
        Where to.
    orders
        How.
    keep
        Is given the row of each request that asks a model.
    """

    def __init__(
        self, server: Server, orders: ProxyOrders, keep: Callable[[dict[str, Any]], None]
    ) -> None:
        self._server, self._orders, self._keep = server, orders, keep
        self._base = server.base.removesuffix("/v1")
        self._http = http_library()
        self._conversations = Conversations()
        self._begin_s = 0.0
        self._request_id = 0
        self.other_count = 0
        """Requests that ask no model; they pass, too."""

    async def run(self, tell: Callable[[str], None]) -> None:
        """Serve until cancelled.

        Parameters
        ----------
        tell
            Is given the address, once it listens.

        Raises
        ------
        OSError
            The port is taken.
        """
        from aiohttp import web

        self._begin_s = asyncio.get_running_loop().time()
        application = web.Application(client_max_size=_MOST_BODY_BYTES)
        application.router.add_route("*", "/{path:.*}", self._handle)
        # An agent that leaves ends its request; at the end nothing is waited for.
        runner = web.AppRunner(
            application, handler_cancellation=True, shutdown_timeout=0.1, access_log=None
        )
        connector = self._http.TCPConnector(limit=0, force_close=True)
        async with self._http.ClientSession(
            connector=connector,
            auto_decompress=False,
            trust_env=False,
            cookie_jar=self._http.DummyCookieJar(),
        ) as self._session:
            await runner.setup()
            try:
                site = web.TCPSite(runner, self._orders.host, self._orders.port)
                await site.start()
                host, port = runner.addresses[0][:2]
                tell(f"http://{f'[{host}]' if ':' in host else host}:{port}")
                await asyncio.Event().wait()
            finally:
                await runner.cleanup()

    def now(self) -> float:
        """Return the seconds since the start."""
        return asyncio.get_running_loop().time() - self._begin_s

    async def _handle(self, request: Any) -> Any:
        from aiohttp import web

        if not _is_local(request.headers):
            # A page in a browser must not reach the server, or use the key, through this proxy.
            return web.Response(status=403, text="moesim record --proxy: only for this machine\n")
        data = await request.read()
        watched = self._watched(request, data)
        if watched is None:
            self.other_count += 1
        elif watched.data is not None:
            data = watched.data
        response: Any = None
        try:
            limits = self._http.ClientTimeout(total=None, sock_connect=CONNECT_S)
            async with self._session.request(
                request.method,
                self._base + request.raw_path,
                headers=self._headers(request.headers),
                data=data,
                timeout=limits,
                allow_redirects=False,
            ) as upstream:
                response = web.StreamResponse(
                    status=upstream.status,
                    reason=upstream.reason,
                    headers=_passed_on(upstream.headers),
                )
                if watched is not None:
                    watched.headers(upstream, self.now())
                await self._pass_on(request, response, upstream, watched)
        except _AgentLeftError:
            pass
        except (self._http.ClientError, OSError, TimeoutError) as error:
            if watched is not None:
                watched.broke(type(error).__name__, is_begun=response is not None)
            if response is not None and response.prepared:
                # The agent must see that the answer is cut off.
                request.transport.abort()
            else:
                response = web.Response(status=502, text="moesim record --proxy: no server\n")
        finally:
            if watched is not None:
                self._end(watched)
        return response

    async def _pass_on(
        self, request: Any, response: Any, upstream: Any, watched: Watched | None
    ) -> None:
        await _to_agent(response.prepare(request))
        async for data in upstream.content.iter_any():
            if watched is not None:
                watched.feed(data, self.now())
            # Waits while the agent does not read, so that the server waits, too.
            await _to_agent(response.write(data))
        if watched is not None:
            watched.end(self.now())
        await _to_agent(response.write_eof())

    def _headers(self, headers: Any) -> dict[str, str]:
        passed = _passed_on(headers)
        for name in ("Host", "Accept-Encoding", "Content-Length"):
            passed.pop(name, None)
        if self._server.key:
            passed["Authorization"] = self._server.headers()["Authorization"]
        passed["Accept-Encoding"] = "identity"
        return passed

    def _watched(self, request: Any, data: bytes) -> Watched | None:
        """Return the watch over a request that asks a model."""
        path = request.path.removeprefix("/v1")
        reader = _READERS.get(path)
        if reader is None or request.method != "POST":
            return None
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(body, dict):
            return None
        changed = None
        if self._orders.ask_usage and body.get("stream") and path != "/messages":
            options = body.get("stream_options")
            asked = {**(options if isinstance(options, dict) else {}), "include_usage": True}
            changed = json.dumps({**body, "stream_options": asked}).encode()
        place = self._conversations.begin(body)
        watched = Watched(
            self._request_id, path, body, len(data), place, Attempt(self.now()), changed, reader
        )
        self._request_id += 1
        return watched

    def _end(self, watched: Watched) -> None:
        attempt = watched.attempt
        if attempt.status == "unfinished" and attempt.answer.is_done:
            watched.end(self.now())  # the agent does not wait for the end of the connection
        row = watched.row(self._server, with_text=self._orders.with_text)
        conversation = watched.place.conversation
        conversation.is_open = False
        conversation.answer = digest(attempt.answer.text)
        if row["output_tokens"] and row["finish_s"] is not None:
            conversation.end_s = row["finish_s"]
        self._keep(row)


class _AgentLeftError(Exception):
    """The agent has closed its connection."""


async def _to_agent(work: Any) -> None:
    try:
        await work
    except (ConnectionError, RuntimeError) as error:
        raise _AgentLeftError from error


def _is_local(headers: Any) -> bool:
    """Return whether a request means this machine, and comes from no page of another one."""
    host = urlsplit(f"//{headers.get('Host', '')}").hostname or ""
    origin = headers.get("Origin")
    return is_loopback(host) and (origin is None or is_loopback(urlsplit(origin).hostname or ""))


def _passed_on(headers: Any) -> dict[str, str]:
    """Return the headers that are not of one connection alone."""
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    return {
        name.title(): value
        for name, value in headers.items()
        if name.lower() not in _NOT_PASSED_ON | named
    }
