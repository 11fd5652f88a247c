"""Fetching `http(s)://` sources on a worker, so that neither a hostile URL nor a slow server does harm.

Every hop is held to the policy: scheme, port and host of the URL, then all addresses that the name resolves
to; the connection goes to the address that was checked, whatever the name resolves to meanwhile. HTTP itself
is aiohttp's, on one event loop, so that a slow server holds a connection but no thread. Proxies of the
environment are not used: behind one, addresses could not be checked.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import contextvars
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import aiohttp
import yarl

from .. import _core
from ..errors import FetchError, SourceRefused
from .addresses import check_addresses
from .fetch_errors import answered, retry_after_s, timed_out, translated
from .http_body import read_body
from .policy import SourcePolicy
from .slots import Slots
from .url_target import Target, bracketed, parse_target

__all__ = ["Fetcher", "Resolver", "shared_fetcher"]

Resolver: TypeAlias = Callable[[str, int], list[str]]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# 203: a proxy on the way has changed the answer, which is the whole image all the same (RFC 9110, 15.3.4).
_WHOLE = frozenset({200, 203})
_IDLE_S = 30.0
_RESOLVED_S = 10.0
_RESOLVED_NAMES = 4096
_HEADERS_MAX = 128
# As http.client takes them; aiohttp's own limit is shorter than the addresses that some stores redirect to.
_HEADER_MAX_BYTES = 64 << 10
_REPEATS = 3
# An image is compressed already; who compresses it again all the same is understood.
_HEADERS = {
    "Accept": "image/*, */*;q=0.5",
    "Accept-Encoding": "identity",
    "User-Agent": f"sglang-mm-ray/{_core.__version__}",
}


def resolve_name(host: str, port: int) -> list[str]:
    """All addresses of a host, in the system's order."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


class _Moved(Exception):
    """The server asks for another request: of another URL, or of the same one after `pause_s`."""

    def __init__(self, target: Target, pause_s: float | None = None) -> None:
        self.target = target
        self.pause_s = pause_s


class _Connector(aiohttp.TCPConnector):
    """Lets whoever made a request cut its connection, which aiohttp would only ask the peer to end."""

    async def connect(self, *args: Any, **kwargs: Any) -> Any:
        connection = await super().connect(*args, **kwargs)
        _USED.get().append((connection.protocol, connection.transport))
        return connection


_USED: contextvars.ContextVar[list[tuple[Any, Any]]] = contextvars.ContextVar("_USED")


class Fetcher:
    """Fetches URLs under one policy, for all threads of a process.

    Args:
        policy: what is allowed, and the limits.
        resolver: addresses of a host name; by default the system's.
        tls: whom to trust; by default the system's authorities.
    """

    def __init__(
        self, policy: SourcePolicy, *, resolver: Resolver = resolve_name, tls: ssl.SSLContext | None = None
    ) -> None:
        self._policy = policy
        self._resolver = resolver
        self._tls = tls
        # Name servers answer to threads. A thread starts only while all others wait for theirs.
        self._resolving = concurrent.futures.ThreadPoolExecutor(
            policy.max_connections, thread_name_prefix="sglang-mm-ray-resolve"
        )
        self._resolved: dict[tuple[str, int], tuple[float, list[str]]] = {}
        # Whoever waits for an answer may hash it at once: not on the thread of the loop.
        self._answering = concurrent.futures.ThreadPoolExecutor(
            min(4, os.cpu_count() or 1), thread_name_prefix="sglang-mm-ray-fetched"
        )
        self._slots = Slots(policy.max_connections_per_host)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def fetch(self, url: str) -> bytes:
        """The body behind `url`; waits for at most the policy's time.

        Raises:
            SourceRefused: the policy does not allow the URL, a redirect or an address.
            FetchError: no answer, or none that is an image; see there for what is `retriable`.
            LimitExceeded: more bytes than the policy allows.
            InvalidArgument: not a URL.
        """
        return self.submit(url).result()

    def submit(self, url: str) -> concurrent.futures.Future[bytes]:
        """Starts a fetch; the future holds what `fetch` returns or raises, by its deadline at the latest.

        Cancelling the future gives the fetch up, with its connection.
        """
        target = parse_target(url, self._policy)
        deadline = time.monotonic() + self._policy.fetch_timeout_s
        future: concurrent.futures.Future[bytes] = concurrent.futures.Future()
        try:
            self._on_loop(lambda: self._begin(target, deadline, future))
        except RuntimeError:
            future.set_exception(FetchError("the fetcher is closed"))
        return future

    def close(self) -> None:
        """Gives up what is under way, closes all connections and takes no more URLs."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is not None and thread is not None and thread.is_alive():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)
            if thread is not threading.current_thread():
                thread.join()
        self._resolving.shutdown(wait=False, cancel_futures=True)
        self._answering.shutdown(wait=False)

    # The loop, and a fetch from its start to its answer

    def _on_loop(self, call: Callable[[], object]) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop,), name="sglang-mm-ray-fetch", daemon=True
                )
                self._thread.start()
            self._loop.call_soon_threadsafe(call)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.run_until_complete(self._shut())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    async def _shut(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._policy.connect_timeout_s)
        if self._session is not None:
            await self._session.close()
            # Transports let go of their sockets a turn of the loop after they are closed.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def _begin(self, target: Target, deadline: float, future: concurrent.futures.Future[bytes]) -> None:
        if future.done():
            return
        loop = asyncio.get_running_loop()
        if self._session is None:
            self._session = self._new_session()
        task = loop.create_task(self._whole(target, deadline, future))

        def expire() -> None:
            # The answer goes out whatever the task makes of being cancelled.
            self._answer(future, timed_out(self._policy.fetch_timeout_s))
            task.cancel()

        def given_up(future: concurrent.futures.Future[bytes]) -> None:
            if future.cancelled():
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(task.cancel)

        timer = loop.call_at(deadline, expire)
        task.add_done_callback(lambda _: timer.cancel())
        future.add_done_callback(given_up)

    async def _whole(self, target: Target, deadline: float, future: concurrent.futures.Future[bytes]) -> None:
        outcome: list[bytes] | Exception
        try:
            outcome = await self._follow(target, deadline)
        except asyncio.CancelledError:
            self._answer(future, FetchError("the fetcher is closed"))
            raise
        except Exception as error:
            outcome = translated(error, self._policy)
        self._answer(future, outcome)

    def _answer(self, future: concurrent.futures.Future[bytes], outcome: list[bytes] | Exception) -> None:
        def answer() -> None:
            # It may have been cancelled, or its time may have run out, meanwhile.
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome[0] if len(outcome) == 1 else b"".join(outcome))

        if not future.done():
            try:
                self._answering.submit(answer)
            except RuntimeError:  # at the end of the process, or of this fetcher
                answer()

    # One URL through its redirects

    async def _follow(self, target: Target, deadline: float) -> list[bytes]:
        redirects = repeats = 0
        while True:
            try:
                return await self._hop(target, may_repeat=repeats < _REPEATS, deadline=deadline)
            except _Moved as moved:
                target = moved.target
                if moved.pause_s is None:
                    redirects += 1
                else:
                    repeats += 1
                    await asyncio.sleep(moved.pause_s)
            if redirects > self._policy.max_redirects:
                raise SourceRefused(
                    f"more than {self._policy.max_redirects} redirects; see SourcePolicy.max_redirects"
                )

    async def _hop(self, target: Target, *, may_repeat: bool, deadline: float) -> list[bytes]:
        async with self._slots.hold(("name", *target.origin)):
            failure: Exception | None = None
            for address in await self._addresses(target):
                # By address too: any number of names may lead to one slow server.
                async with self._slots.hold(("address", address)):
                    try:
                        return await self._get(target, address, may_repeat, deadline)
                    except aiohttp.ClientConnectorCertificateError:
                        raise
                    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                        failure = error
            raise failure or FetchError("the host has no address")

    async def _addresses(self, target: Target) -> list[str]:
        key, now = (target.host, target.port), time.monotonic()
        until, addresses = self._resolved.get(key, (0.0, []))
        if now < until:
            return addresses
        loop = asyncio.get_running_loop()
        addresses = await loop.run_in_executor(self._resolving, self._resolver, *key)
        check_addresses(addresses, self._policy)
        if len(self._resolved) >= _RESOLVED_NAMES:
            self._resolved.clear()
        self._resolved[key] = now + _RESOLVED_S, addresses
        return addresses

    def _new_session(self) -> aiohttp.ClientSession:
        connector = _Connector(
            limit=self._policy.max_connections,
            keepalive_timeout=_IDLE_S,
            use_dns_cache=False,
            ssl=self._tls or True,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            max_headers=_HEADERS_MAX,
            max_line_size=_HEADER_MAX_BYTES,
            max_field_size=_HEADER_MAX_BYTES,
            headers=_HEADERS,
            # The fetch as a whole has a deadline of its own.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._policy.connect_timeout_s),
        )

    async def _get(self, target: Target, address: str, may_repeat: bool, deadline: float) -> list[bytes]:
        used: list[tuple[Any, Any]] = []
        _USED.set(used)
        try:
            return await self._exchange(target, address, may_repeat, deadline)
        finally:
            for protocol, transport in used:
                # Closed, and not given back for the next request. TLS would wait for the peer's farewell.
                if transport is not None and protocol.transport is None:
                    transport.abort()

    async def _exchange(self, target: Target, address: str, may_repeat: bool, deadline: float) -> list[bytes]:
        assert self._session is not None
        # The address is the URL's host, so that nothing is left to resolve. The certificate must be the
        # name's, and only requests for the same name share a connection.
        url = yarl.URL(f"{target.scheme}://{bracketed(address)}:{target.port}{target.resource}", encoded=True)
        async with self._session.get(
            url, headers={"Host": target.authority}, server_hostname=target.host, allow_redirects=False
        ) as response:
            status, headers = response.status, response.headers
            if status in _REDIRECTS and headers.get("Location"):
                raise _Moved(target.redirected(headers["Location"], self._policy))
            if status in _WHOLE:
                return await read_body(
                    response.content.iter_any(),
                    response.content_length,
                    ",".join(headers.getall("Content-Encoding", ())),
                    self._policy.max_input_bytes,
                )
            pause_s = retry_after_s(status, headers.get("Retry-After"))
            if may_repeat and pause_s is not None and time.monotonic() + pause_s < deadline:
                raise _Moved(target, pause_s)
            raise answered(status, pause_s)


_shared: dict[tuple[int, SourcePolicy], Fetcher] = {}
_shared_lock = threading.Lock()


def shared_fetcher(policy: SourcePolicy) -> Fetcher:
    """The fetcher of this process for `policy`; a forked child gets its own."""
    key = (os.getpid(), policy)
    with _shared_lock:
        if key not in _shared:
            if not any(pid == key[0] for pid, _ in _shared):
                atexit.register(_close_shared, key[0])
            _shared[key] = Fetcher(policy)
        return _shared[key]


def _close_shared(pid: int) -> None:
    # A forked child inherits the registration, but neither the thread nor the right to the sockets.
    if pid == os.getpid():
        for (owner, _), fetcher in list(_shared.items()):
            if owner == pid:
                fetcher.close()
