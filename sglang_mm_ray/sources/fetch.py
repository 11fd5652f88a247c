"""Fetching `http(s)://` sources on a worker, so that neither a hostile URL nor a slow server does harm.

Every hop is held to the policy: scheme, port and host of the URL, then all addresses that the name resolves
to; the connection goes to the address that was checked, whatever the name resolves to meanwhile. A fetch that
waits for a slot of a busy host waits in a queue, not in a thread. Proxies of the environment are not used:
behind one, addresses could not be checked.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import heapq
import http.client
import itertools
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Hashable
from typing import TypeAlias

from ..errors import FetchError, InternalError, PreprocessError, SourceRefused
from .addresses import check_addresses
from .http_exchange import Answer, Connection, remaining_s, tls_context, user_agent
from .policy import SourcePolicy
from .url_target import Target, parse_target, url_label

__all__ = ["Fetcher", "Resolver", "shared_fetcher", "url_label"]

Resolver: TypeAlias = Callable[[str, int], list[str]]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_IDLE_S = 30.0


def resolve_name(host: str, port: int) -> list[str]:
    """All addresses of a host, in the system's order. Odd spellings of IPv4 come out as what they mean."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


class _Job:
    """One URL on its way through redirects, and the slots it holds for the hop at hand."""

    def __init__(self, target: Target, deadline: float) -> None:
        self.target = target
        self.deadline = deadline
        self.redirects = 0
        self.addresses: list[str] = []
        self.held: list[Hashable] = []
        self.future: concurrent.futures.Future[bytes] = concurrent.futures.Future()


class _Slots:
    """At most `limit` jobs hold a key at a time; the others queue, without a thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._taken: collections.Counter[Hashable] = collections.Counter()
        self._waiting: dict[Hashable, collections.deque[_Job]] = {}

    def take(self, key: Hashable, job: _Job) -> bool:
        with self._lock:
            if key in job.held:
                return True
            if self._taken[key] < self._limit:
                self._taken[key] += 1
                job.held.append(key)
                return True
            self._waiting.setdefault(key, collections.deque()).append(job)
            return False

    def give_all(self, job: _Job) -> list[_Job]:
        """Returns what `job` holds; the jobs that got a slot by that."""
        awake = []
        with self._lock:
            for key in job.held:
                queue = self._waiting.get(key)
                if queue:
                    following = queue.popleft()
                    following.held.append(key)
                    awake.append(following)
                    if not queue:
                        del self._waiting[key]
                else:
                    self._taken[key] -= 1
                    if not self._taken[key]:
                        del self._taken[key]
            job.held.clear()
        return awake


class _Deadlines:
    """Calls back for each job whose time has run out, on one thread that starts with the first job.

    A thread that hangs in a name server, or a queue, must not keep an answer from its caller.
    """

    def __init__(self, expire: Callable[[_Job], None]) -> None:
        self._expire = expire
        self._heap: list[tuple[float, int, _Job]] = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._started = False

    def add(self, job: _Job) -> None:
        with self._changed:
            heapq.heappush(self._heap, (job.deadline, next(self._count), job))
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="sglang-mm-ray-deadlines", daemon=True).start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._heap or self._heap[0][0] > time.monotonic():
                    self._changed.wait(self._heap[0][0] - time.monotonic() if self._heap else None)
                _, _, job = heapq.heappop(self._heap)
            self._expire(job)
            # Not to be kept alive until the next deadline.
            del job


class Fetcher:
    """Fetches URLs under one policy, for all threads of a process.

    Args:
        policy: what is allowed, and the limits.
        resolver: addresses of a host name; by default the system's.
        tls: a context made by `http_exchange.tls_context`.
    """

    def __init__(
        self, policy: SourcePolicy, *, resolver: Resolver = resolve_name, tls: ssl.SSLContext | None = None
    ) -> None:
        self._policy = policy
        self._resolver = resolver
        self._tls = tls
        self._tls_lock = threading.Lock()
        self._threads = concurrent.futures.ThreadPoolExecutor(
            policy.max_connections, thread_name_prefix="sglang-mm-ray-fetch"
        )
        self._slots = _Slots(policy.max_connections_per_host)
        self._deadlines = _Deadlines(lambda job: self._answer(job, error=TimeoutError()))
        self._idle: dict[tuple[str, str, int], list[Connection]] = {}
        self._idle_lock = threading.Lock()
        self._closed = False

    def fetch(self, url: str, timeout_s: float | None = None) -> bytes:
        """The body behind `url`; waits for at most the policy's time, or `timeout_s` if that is less.

        Raises:
            SourceRefused: the policy does not allow the URL, a redirect or an address.
            FetchError: no answer, or another one than 200; `retriable` only if the time ran out.
            LimitExceeded: more bytes than the policy allows.
            InvalidArgument: not a URL.
        """
        return self.submit(url, timeout_s).result()

    def submit(self, url: str, timeout_s: float | None = None) -> concurrent.futures.Future[bytes]:
        """Starts a fetch; the future holds what `fetch` returns or raises, by its deadline at the latest.

        Cancelling the future gives up the fetch's place. It holds no thread while it waits for its host.
        """
        limit_s = self._policy.fetch_timeout_s
        limit_s = limit_s if timeout_s is None else min(limit_s, timeout_s)
        job = _Job(parse_target(url, self._policy), time.monotonic() + limit_s)
        self._deadlines.add(job)
        self._start(job)
        return job.future

    def close(self) -> None:
        """Closes the idle connections and takes no more URLs."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._idle_lock:
            self._closed = True
            connections = [item for group in self._idle.values() for item in group]
            self._idle.clear()
        for connection in connections:
            connection.close()

    def _start(self, job: _Job) -> None:
        try:
            self._threads.submit(self._hop, job)
        except RuntimeError:
            self._answer(job, error=FetchError("the fetcher is closed"))

    def _hop(self, job: _Job) -> None:
        """One request of a job; a redirect starts another hop, so that its host's queue holds no thread."""
        try:
            if job.future.done():
                self._release(job)
                return
            remaining_s(job.deadline)
            if not self._slots.take(("name", *job.target.origin), job):
                return
            connection = self._reused(job)
            if connection is None and not job.addresses:
                job.addresses = self._resolver(job.target.host, job.target.port)
                if not job.addresses:
                    raise FetchError("the host has no address")
                check_addresses(job.addresses, self._policy)
            # By address too: any number of names may lead to one slow server.
            address = connection.address if connection else job.addresses[0]
            if not self._slots.take(("address", address), job):
                if connection:
                    self._park(connection)
                return
            answer = self._exchange(job, connection)
            if answer.status in _REDIRECTS and answer.location:
                self._redirect(job, answer.location)
                return
            if answer.status != http.client.OK:
                raise FetchError(f"the server answered {answer.status}", status=answer.status)
            self._release(job)
            self._answer(job, answer.body)
        except Exception as error:
            self._release(job)
            self._answer(job, error=error)

    def _exchange(self, job: _Job, connection: Connection | None) -> Answer:
        if connection is not None:
            try:
                return self._get(job, connection)
            except (ConnectionError, http.client.RemoteDisconnected):
                # The peer closed it at the moment of reuse; its address was checked and is used again.
                job.addresses = [connection.address]
        return self._get(job, self._connect(job))

    def _get(self, job: _Job, connection: Connection) -> Answer:
        try:
            answer = connection.get(job.target, job.deadline, self._policy.max_input_bytes, user_agent())
        except BaseException:
            connection.close()
            raise
        if answer.reusable:
            self._park(connection)
        else:
            connection.close()
        return answer

    def _connect(self, job: _Job) -> Connection:
        failure: OSError | None = None
        for address in job.addresses:
            try:
                return Connection(
                    job.target, address, self._tls_context(), job.deadline, self._policy.connect_timeout_s
                )
            except ssl.SSLCertVerificationError:
                raise
            except OSError as error:
                failure = error
        raise failure or FetchError("the host has no address")

    def _tls_context(self) -> ssl.SSLContext:
        with self._tls_lock:
            if self._tls is None:
                self._tls = tls_context()
            return self._tls

    def _reused(self, job: _Job) -> Connection | None:
        while True:
            with self._idle_lock:
                group = self._idle.get(job.target.origin)
                if not group:
                    return None
                connection = group.pop()
            if time.monotonic() - connection.idle_since < _IDLE_S and connection.usable():
                return connection
            connection.close()

    def _park(self, connection: Connection) -> None:
        connection.idle_since = time.monotonic()
        with self._idle_lock:
            group = self._idle.setdefault(connection.origin, [])
            group.append(connection)
            room = 0 if self._closed else self._policy.max_connections_per_host
            surplus = group.pop(0) if len(group) > room else None
        if surplus:
            surplus.close()

    def _redirect(self, job: _Job, location: str) -> None:
        if job.redirects >= self._policy.max_redirects:
            raise SourceRefused(
                f"more than {self._policy.max_redirects} redirects; see SourcePolicy.max_redirects"
            )
        job.redirects += 1
        job.target = parse_target(job.target.join(location), self._policy)
        job.addresses = []
        self._release(job)
        self._start(job)

    def _release(self, job: _Job) -> None:
        for following in self._slots.give_all(job):
            self._start(following)

    def _answer(self, job: _Job, body: bytes = b"", error: Exception | None = None) -> None:
        # It may have been cancelled, or its time may have run out, meanwhile.
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            if error is None:
                job.future.set_result(body)
            else:
                job.future.set_exception(self._translated(error))

    def _translated(self, error: Exception) -> Exception:
        # Texts of lower layers may quote the URL or an address; the type says enough.
        if isinstance(error, PreprocessError):
            return error
        if isinstance(error, TimeoutError):
            return _timed_out(self._policy.fetch_timeout_s)
        # getaddrinfo raises UnicodeError for labels that are too long.
        if isinstance(error, (socket.gaierror, UnicodeError)):
            return FetchError("the host name does not resolve")
        if isinstance(error, ssl.SSLCertVerificationError):
            return FetchError("the server's certificate is not valid for its name")
        if isinstance(error, (OSError, http.client.HTTPException)):
            return FetchError(f"the connection failed ({type(error).__name__})")
        return InternalError(f"fetching failed ({type(error).__name__})")


def _timed_out(limit_s: float) -> FetchError:
    return FetchError(f"no complete answer within {limit_s:g} s", retriable=True)


_shared: dict[tuple[int, SourcePolicy], Fetcher] = {}
_shared_lock = threading.Lock()


def shared_fetcher(policy: SourcePolicy) -> Fetcher:
    """The fetcher of this process for `policy`; a forked child gets its own."""
    key = (os.getpid(), policy)
    with _shared_lock:
        if key not in _shared:
            _shared[key] = Fetcher(policy)
        return _shared[key]
