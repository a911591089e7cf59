"""A client for one API server with one set of credentials; requests are coroutines that can be cancelled.

    method ──> _request (path and parameters are checked) ──> httpx ──> bounded body ──> JSON, or an error of .errors

Every failure becomes one of the errors in :mod:`.errors`. What does not answer like an API server counts as
unreachable: nothing that it sends may look like an empty list. A watch is an iterator of events that ends with the
server's stream; a stream that does not end in time is dead.

Answers are plain JSON data: the typed models of the official client decode a hundred times as slowly, and an object
is needed for a few of its keys. httpx is imported when a client is opened, so a node without an API server never pays.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import trio

from actors.lib.metrics.counters import API_WRITE_ERRORS
from config.api import ApiCredentials
from config.syntax.printable import one_line
from supervisor.version import VERSION

from .errors import ApiError, InvalidError, TooLargeError, UnreachableError, error_for

if TYPE_CHECKING:
    import httpx

Json = dict[str, Any]
Params = Mapping[str, str | int]

#: Seconds for connecting, and for the whole answer to an ordinary request.
CONNECT_SECONDS: Final = 5.0
REQUEST_SECONDS: Final = 30.0
#: How long a watch lasts by default; a fifth more or less, so that the nodes' watches do not all end at once.
#: Nothing else bounds the silence of a quiet one: the server sends bookmarks only when its version of the resource has
#: moved (k8s.io/apiserver, cacher: seen with 1.33 and 1.36, none in 140 s). That it ends the watch is its keepalive.
WATCH_SECONDS: Final = 300.0
#: How much longer a watch may last than requested before its connection counts as dead.
SLACK_SECONDS: Final = 30.0
#: TCP keepalive, for a network that drops everything: dead after some 45 s. Seconds; the last in milliseconds.
_SOCKET_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 45_000),
)
#: etcd refuses objects above 1.5 MiB; an event holds one of them in JSON.
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
#: Most bytes of an ordinary answer, which takes some fifteen times as much memory while it is decoded. Of a list whose
#: page is larger smaller pages are asked for.
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
PAGE_SIZE: Final = 500
_SMALLER: Final = 4
#: RFC 6750 section 2.1, and no more than a header may hold.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,65536}")
#: More levels than a list of objects with the deepest spec that is accepted (:data:`config.models.base.MAX_DEPTH`).
_MAX_DEPTH: Final = 64
#: What decides how deeply JSON is nested: strings, since they may contain brackets, and brackets.
#: Possessive: a tenant's string may be a megabyte long, of which each character would be one to come back to.
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[][{}]', re.DOTALL)


class KubeClient:
    """Use it as an async context manager. Every method raises the errors of :mod:`actors.lib.kube.errors`."""

    def __init__(self, credentials: ApiCredentials) -> None:
        self.credentials = credentials
        self._http: httpx.AsyncClient | None = None

    async def __aenter__(self) -> KubeClient:
        import httpx

        self._http = httpx.AsyncClient(
            base_url=_address(self.credentials),
            headers=_headers(self.credentials),
            timeout=httpx.Timeout(REQUEST_SECONDS, connect=CONNECT_SECONDS),
            transport=httpx.AsyncHTTPTransport(
                verify=ssl_context(self.credentials),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=4, keepalive_expiry=30),
                socket_options=_SOCKET_OPTIONS,
                # The environment's proxies are for interactive use: a node reaches its API server directly.
                trust_env=False,
            ),
            trust_env=False,
            follow_redirects=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._http is not None:
            http, self._http = self._http, None
            with trio.move_on_after(1, shield=True):
                await http.aclose()

    async def get(self, path: str, params: Params | None = None) -> Json:
        """Return one object, or one page of a list."""
        return await self._call("GET", path, params=params)

    async def text(self, path: str) -> str:
        """Return an answer that is not JSON, such as that of ``/readyz``."""
        return (await self._answer(self._request("GET", path), f"GET {path}")).decode(errors="replace")

    async def pages(
        self, path: str, params: Params | None = None, *, limit: int = PAGE_SIZE
    ) -> AsyncGenerator[Json, None]:
        """Yield the pages of a list, each with ``items`` and ``metadata``; all are of one resource version."""
        wanted: dict[str, str | int] = {**(params or {}), "limit": limit}
        while True:
            try:
                page = await self.get(path, wanted)
            except TooLargeError:
                if limit == 1:
                    raise
                wanted["limit"] = limit = max(1, limit // _SMALLER)
                continue
            yield page
            token = page.get("metadata", {}).get("continue")
            if not token:
                return
            wanted["continue"] = token

    async def create(self, path: str, body: Json, params: Params | None = None) -> Json:
        """POST a new object to its collection's path."""
        return await self._call("POST", path, params=params, body=body)

    async def replace(self, path: str, body: Json, params: Params | None = None) -> Json:
        """PUT an object; its ``metadata.resourceVersion`` guards against overwriting another change."""
        return await self._call("PUT", path, params=params, body=body)

    async def apply(self, path: str, body: Json, *, manager: str) -> Json:
        """Server-side apply: take over the fields in ``body``, and remove those set before that it lacks."""
        params: Params = {"fieldManager": manager, "force": "true"}
        return await self._call("PATCH", path, params=params, body=body, content_type="application/apply-patch+yaml")

    async def merge_patch(self, path: str, body: Json, *, manager: str) -> Json:
        """Change some fields of an object (RFC 7386)."""
        params: Params = {"fieldManager": manager}
        return await self._call("PATCH", path, params=params, body=body, content_type="application/merge-patch+json")

    async def try_merge_patch(self, path: str, body: Json) -> Json:
        """Let the server admit or refuse a merge patch, without storing anything."""
        return await self._call(
            "PATCH", path, params={"dryRun": "All"}, body=body, content_type="application/merge-patch+json"
        )

    async def delete(self, path: str, *, uid: str = "", resource_version: str = "") -> None:
        """Delete an object; with ``uid`` only that one, with ``resource_version`` only if it is unchanged."""
        conditions = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in conditions.items() if value}
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            body["preconditions"] = preconditions
        await self._call("DELETE", path, body=body)

    @asynccontextmanager
    async def watch(self, path: str, params: Params) -> AsyncIterator[AsyncIterator[Json]]:
        """Open a watch; the value is an iterator of events, which ends when the server ends the stream.

        It does so after ``timeoutSeconds``, about five minutes if ``params`` has none: then watch again from the last
        version. Until then silence is normal. ERROR events are returned as they are: see :func:`.errors.error_in`.
        Raises :class:`UnreachableError` for a stream that does not end in time, a broken connection, a truncated event
        and what is not JSON.
        """
        import httpx

        lasting = int(params.get("timeoutSeconds", WATCH_SECONDS * random.uniform(0.8, 1.2)))  # noqa: S311 - no secret
        params = {**params, "watch": "true", "timeoutSeconds": lasting}
        timeout = httpx.Timeout(REQUEST_SECONDS, connect=CONNECT_SECONDS, read=lasting + SLACK_SECONDS)
        request = self._request("GET", path, params=params, timeout=timeout)
        async with self._open(request, f"watch {path}") as response, aclosing(_events(response)) as events:
            yield events

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> Json:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if body is not None else {}
        request = self._request(method, path, params=params, content=content, headers=headers)
        try:
            return _decoded(await self._answer(request, f"{method} {path}"), path)
        except ApiError as error:
            if method != "GET":
                API_WRITE_ERRORS.count(method, error.category)
            raise

    async def _answer(self, request: httpx.Request, what: str) -> bytes:
        with self._deadline(what):
            async with self._open(request, what) as response:
                return await _body(response)

    @asynccontextmanager
    async def _open(self, request: httpx.Request, what: str) -> AsyncIterator[httpx.Response]:
        """Send a request; the value is the successful response, whose body is still to be read."""
        with self._deadline(what):
            response = await self._received(request)
        try:
            if response.status_code >= 300:
                with self._deadline(what):
                    _raise_for(response.status_code, response.headers, await _body(response), what)
            yield response
        finally:
            with trio.move_on_after(1, shield=True):
                await response.aclose()

    def _request(self, method: str, path: str, **more: Any) -> httpx.Request:
        """Return a request. Raises :class:`InvalidError` for a path or parameters that no URL can have."""
        import httpx

        # A name from outside is path text and nothing else: no query, no fragment, no parent directory.
        if not {".", ".."}.isdisjoint(path.split("/")):
            raise InvalidError(f"{method} {one_line(path)}: no object can have this name")
        try:
            return self._client().build_request(method, quote(path), **more)
        except httpx.InvalidURL as error:
            raise InvalidError(f"{method} {one_line(path)}: {one_line(str(error))}") from None

    async def _received(self, request: httpx.Request) -> httpx.Response:
        import httpx

        if self.credentials.server_name:
            request.extensions["sni_hostname"] = self.credentials.server_name
        try:
            return await self._client().send(request, stream=True)
        # A ValueError is Python's for a host name that its resolver, or its TLS, cannot encode.
        except (httpx.HTTPError, ssl.SSLError, OSError, ValueError) as error:
            raise UnreachableError(f"{self.credentials.server}: {_describe(error)}") from None

    @contextmanager
    def _deadline(self, what: str) -> Iterator[None]:
        with trio.move_on_after(REQUEST_SECONDS) as scope:
            yield
        if scope.cancelled_caught:
            raise UnreachableError(
                f"{self.credentials.server}: {what}: no complete answer within {REQUEST_SECONDS:g} s"
            )

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            raise RuntimeError("the client is not open")
        return self._http


def _address(credentials: ApiCredentials) -> httpx.URL:
    """Return the server's address. What is refused is not quoted: a password may be in it."""
    import httpx

    try:
        url = httpx.URL(credentials.server)
    except httpx.InvalidURL:
        raise UnreachableError(f"{credentials.source}: the server's address is not a URL") from None
    if url.scheme not in ("https", "http") or not url.host or url.userinfo:
        raise UnreachableError(f"{credentials.source}: the server's address must be https://HOST[:PORT][/PATH]")
    return url


def _headers(credentials: ApiCredentials) -> dict[str, str]:
    headers = {"User-Agent": f"openperouter/{VERSION}", "Accept": "application/json"}
    if credentials.token is not None:
        token = credentials.token.reveal()
        # Checked here because the libraries quote what they cannot send.
        if not _TOKEN.fullmatch(token):
            raise UnreachableError(f"{credentials.source}: the token is empty or has characters that no token can have")
        headers["Authorization"] = f"Bearer {token}"
    return headers


def ssl_context(credentials: ApiCredentials) -> ssl.SSLContext:
    """Return the TLS context for the authority and the client certificate. Raises :class:`UnreachableError`."""
    try:
        context = ssl.create_default_context(cadata=credentials.ca or None)
        # Python 3.13 requires extensions that existing clusters' authorities lack and Go's clients ignore.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not credentials.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if credentials.client_certificate and credentials.client_key is not None:
            load_pair(context, credentials.client_certificate, credentials.client_key.reveal())
    except (ssl.SSLError, ValueError) as error:
        raise UnreachableError(f"{credentials.source}: its certificates are not usable: {_describe(error)}") from None
    return context


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate and its key. OpenSSL reads only files: one in memory keeps the key off the disk."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor has no path
        file.write(f"{certificate}\n{key}\n".encode())
        file.flush()
        # Without a password callback an encrypted key would prompt on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: b"")


async def _body(response: httpx.Response) -> bytes:
    import httpx

    parts = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            parts += chunk
            if len(parts) > MAX_ANSWER_BYTES:
                raise TooLargeError(f"{response.url.path}: an answer of more than {MAX_ANSWER_BYTES} bytes")
    except httpx.HTTPError as error:
        raise UnreachableError(f"{response.url.path}: {_describe(error)}") from None
    return bytes(parts)


async def _events(response: httpx.Response) -> AsyncGenerator[Json, None]:
    """Yield the stream's lines, decoded."""
    import httpx

    path = response.url.path
    begun = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            # Only the new bytes are searched: a long line comes in a thousand pieces.
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                begun += line
                if begun.strip():
                    yield _decoded(begun, path)
                begun = bytearray()
            begun += rest
            if len(begun) > MAX_LINE_BYTES:
                raise UnreachableError(f"{path}: an event of more than {MAX_LINE_BYTES} bytes")
    except httpx.HTTPError as error:
        raise UnreachableError(f"{path}: the watch broke: {_describe(error)}") from None
    if begun.strip():
        raise UnreachableError(f"{path}: the watch ended in the middle of an event")


def _decoded(data: bytes | bytearray, path: str) -> Json:
    try:
        try:
            decoded = json.loads(data)
        except RecursionError:
            # One object must not hide all others. The caller refuses what is nested like that.
            decoded = json.loads(_without_depths(data))
    except (ValueError, RecursionError):
        raise UnreachableError(f"{path}: the answer is not JSON: not an API server") from None
    if not isinstance(decoded, dict):
        raise UnreachableError(f"{path}: the answer is not a JSON object: not an API server")
    return decoded


def _without_depths(text: bytes | bytearray) -> bytes:
    """Return JSON text with null for what is nested deeper than :data:`_MAX_DEPTH` levels."""
    kept: list[bytes] = []
    depth = begin = 0
    for token in _STRUCTURE.finditer(text):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth == _MAX_DEPTH:
                kept += (text[begin : token.start()], b"null")
        elif token[0] in (b"]", b"}"):
            if depth == _MAX_DEPTH:
                begin = token.end()
            depth -= 1
    return b"".join([*kept, text[begin:]])


def _raise_for(code: int, headers: Mapping[str, str], answer: bytes, what: str) -> None:
    """Raise the error for a failed answer. The server's own text is bounded."""
    if code < 400:
        raise UnreachableError(f"{what}: redirected (HTTP {code}): not an API server", code=code)
    try:
        decoded = json.loads(answer)
    except (ValueError, RecursionError):
        decoded = None
    status = decoded if isinstance(decoded, dict) else {}
    message = str(status.get("message") or "") or answer[:200].decode(errors="replace") or "no reason given"
    raise error_for(code, str(status.get("reason") or ""), f"{what}: {one_line(message)}", _retry_after(headers))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the header's seconds, bounded to five minutes; None when there is none or it is a date."""
    text = headers.get("retry-after", "")
    return min(float(text), 300.0) if text.isdecimal() else None


def _describe(error: BaseException) -> str:
    """Return the innermost error's text: those around it are httpx's, httpcore's and trio's, often without any."""
    import httpx

    if isinstance(error, httpx.TimeoutException):
        # The innermost is trio's, which says only that it was cancelled.
        return f"no answer in time ({type(error).__name__})"
    text = type(error).__name__
    inner: BaseException | None = error
    while inner is not None:
        text = str(inner) or text
        inner = inner.exceptions[0] if isinstance(inner, BaseExceptionGroup) else inner.__cause__ or inner.__context__
    # OpenSSL's own source line is of no use.
    return one_line(re.sub(r" \(_ssl\.c:\d+\)$", "", text))
