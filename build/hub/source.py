"""Bytes of one range over HTTP: by the standard library, redirects followed by hand so that a token never leaves its host."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import IO, Protocol
from urllib.parse import urljoin, urlsplit

REDIRECTS = 5
RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


class Trouble(Exception):
    """A transfer that did not work. ``again``: worth another try; ``pause_s``: as the server asked; ``code``: HTTP's, or 0."""

    def __init__(self, what: str, *, again: bool = True, pause_s: float = 0.0, code: int = 0) -> None:
        super().__init__(what)
        self.again, self.pause_s, self.code = again, pause_s, code


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file's bytes are. ``headers`` may hold a token and are sent to ``host`` (name and port) alone."""

    url: str
    host: str
    headers: Mapping[str, str]


class Body(Protocol):
    """What a range is read from; ends early where the connection does."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the start of ``buffer``; 0 at the end."""

    def close(self) -> None:
        """Drop the connection."""


def _opener() -> urllib.request.OpenerDirector:
    """Proxies of the environment, http and https; no handler for redirects, which therefore come back as errors."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def open_range(place: Place, start: int, end: int, size: int, stall_s: float) -> Body:
    """A body of bytes ``start`` to ``end`` (exclusive) of a file of ``size``. ``Trouble`` where the server says otherwise."""
    opener = _opener()
    url = place.url
    for _ in range(REDIRECTS):
        given = dict(place.headers) if urlsplit(url).netloc == place.host else {}
        given |= {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        try:
            answer = opener.open(urllib.request.Request(url, headers=given), timeout=stall_s)  # noqa: S310 - http(s) is checked
        except urllib.error.HTTPError as error:
            with closing(error):
                if error.code in {301, 302, 303, 307, 308} and error.headers.get("Location"):
                    url = _web(urljoin(url, error.headers["Location"]))
                    continue
                raise _refused(error) from None
        except (OSError, http.client.HTTPException) as error:
            raise Trouble(f"{urlsplit(url).netloc}: {_why(error)}") from None
        return _checked(answer, start, size, urlsplit(url).netloc)
    raise Trouble(f"{place.host} redirects without end", again=False)


def _web(url: str) -> str:
    if urlsplit(url).scheme not in {"http", "https"}:
        raise Trouble(f"the hub redirects to {url[:80]!r}, which is no web address", again=False)
    return url


def _checked(answer: IO[bytes], start: int, size: int, host: str) -> Body:
    """The answer's body, where it is the range that was asked for."""
    assert isinstance(answer, http.client.HTTPResponse)
    said = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
    length = answer.headers.get("Content-Length", "")
    if answer.status == 206 and said and (int(said[1]), int(said[2])) == (start, size):
        return answer
    if answer.status == 200 and start == 0 and length == str(size):
        return answer
    answer.close()
    has = said[2] if said else length or "no size"
    if has != str(size):
        raise Trouble(f"{host} has {has} bytes of it, the lock {size}", again=False)
    raise Trouble(f"{host} does not serve ranges (it answered {answer.status})", again=False)


def _refused(error: urllib.error.HTTPError) -> Trouble:
    asked = error.headers.get("Retry-After", "")
    pause = float(asked) if re.fullmatch(r"\d{1,4}", asked) else 0.0
    return Trouble(
        f"{urlsplit(error.url).netloc} answered {error.code}", again=error.code in RETRIED, pause_s=pause, code=error.code
    )


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    if isinstance(error, TimeoutError) or isinstance(reason, TimeoutError):
        return "no answer in time"
    return str(reason or "") or str(error) or type(error).__name__
