"""The hub as huggingface_hub knows it: addresses, login, listings and metadata. The one module that imports that library.

The library reads its environment when it is imported, so HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are its own business; where the
cache lies is not asked of it but a setting of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from build.errors import BuildFailed
from build.hub import files
from build.hub.files import Snapshot
from build.hub.source import RETRIED, Place, Trouble

ETAG_S = 30.0
LOGIN = "`hf auth login`, or HF_TOKEN in the environment"
TRANSPORTS = {"httpx", "httpx2", "httpcore", "httpcore2"}  # what the library speaks HTTP with


class Hub(Protocol):
    """What fetching and locking ask of a hub."""

    def locate(self, repo: str, revision: str, path: str) -> Place:
        """Where a file's bytes are. ``Trouble`` where asking again may help, ``BuildFailed`` where a person has to act."""

    def snapshot(self, repo: str, ref: str) -> Snapshot:
        """The commit that a ref names now, and every file of it."""

    def download(self, repo: str, revision: str, path: str, cache: Path) -> None:
        """Let the hub's own client fetch a file into its cache, by Xet where the hub offers that. Raises as ``locate`` does."""


class LibraryHub:
    """The real hub. ``endpoint`` and ``token``: in place of what the library finds by itself."""

    def __init__(self, endpoint: str | None = None, token: str | None = None) -> None:
        from huggingface_hub import constants, get_token

        self._endpoint = (endpoint or constants.ENDPOINT).rstrip("/")
        self._token = token if token is not None else get_token()

    def locate(self, repo: str, revision: str, path: str) -> Place:
        """Ask for the file's metadata, which a gated repository refuses, and give the address of its bytes."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.utils._headers import build_hf_headers

        url = hf_hub_url(repo, path, revision=revision, endpoint=self._endpoint)
        with self._told(repo, f"{path} at {revision[:12]}"):
            found = get_hf_file_metadata(url, token=self._token or False, timeout=ETAG_S, endpoint=self._endpoint)
        if found.commit_hash and found.commit_hash != revision:
            raise BuildFailed(f"{repo}: asked for commit {revision[:12]}, the hub answered with {found.commit_hash[:12]}")
        headers: Mapping[str, str] = build_hf_headers(token=self._token or False)
        return Place(found.location, urlsplit(self._endpoint).netloc, headers)

    def snapshot(self, repo: str, ref: str) -> Snapshot:
        """The listing of a ref, at the commit that it names now."""
        from huggingface_hub import HfApi

        api = HfApi(endpoint=self._endpoint, token=self._token or False)
        with self._told(repo, f"revision {ref}"):
            commit = str(api.model_info(repo, revision=ref).sha)
            listing = [_raw(entry) for entry in api.list_repo_tree(repo, recursive=True, revision=commit)]
        if not files.COMMIT.fullmatch(commit):
            raise BuildFailed(f"{repo}: the hub names {commit!r} for {ref}, which is no commit")
        return Snapshot(repo, commit, files.from_tree(listing))

    def download(self, repo: str, revision: str, path: str, cache: Path) -> None:
        """The library's own way, with its own tries; it refuses files above 50 GB that the hub does not offer by Xet."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.utils._runtime import is_xet_available
        from huggingface_hub.utils.tqdm import disable_progress_bars

        if not is_xet_available():
            raise BuildFailed(
                "hub_transport = xet: the package hf_xet cannot be used here (not installed, or HF_HUB_DISABLE_XET is set): "
                'install it, or set hub_transport = "http"'
            )
        disable_progress_bars()
        with self._told(repo, f"{path} at {revision[:12]}"):
            try:
                hf_hub_download(
                    repo, path, revision=revision, cache_dir=cache, token=self._token or False, endpoint=self._endpoint
                )
            except RuntimeError as error:  # what hf_xet raises, whatever went wrong
                raise Trouble(" ".join(str(error).split())[:200]) from None

    @contextmanager
    def _told(self, repo: str, what: str) -> Iterator[None]:
        """The library's refusals, as one line that says what to do."""
        try:
            yield
        except Exception as error:
            raise self._translated(error, f"{self._endpoint}/{repo}", what) from None

    def _translated(self, error: Exception, page: str, what: str) -> Exception:
        """``Trouble`` for what may pass, ``BuildFailed`` for what a person has to mend, else the error itself."""
        from huggingface_hub import errors

        lost = f"{page} has no {what} (404): the lock is of another commit, or the hub lost it"
        by_kind: tuple[tuple[type[Exception], Callable[[], Exception]], ...] = (
            (errors.GatedRepoError, lambda: BuildFailed(self._refused(_status(error), page))),
            (errors.OfflineModeIsEnabled, lambda: BuildFailed(f"{page}: {what} is not in the cache, and HF_HUB_OFFLINE is set")),
            (errors.RepositoryNotFoundError, lambda: BuildFailed(self._no_repository(_status(error), page))),
            (errors.RevisionNotFoundError, lambda: BuildFailed(lost)),
            (errors.EntryNotFoundError, lambda: BuildFailed(lost)),
            (errors.HfHubHTTPError, lambda: self._http(_status(error), page)),
            (Trouble, lambda: error),
            (OSError, lambda: Trouble(f"{urlsplit(page).netloc}: {error}")),
        )
        for kind, made in by_kind:
            if isinstance(error, kind):
                return made()
        if type(error).__module__.partition(".")[0] in TRANSPORTS:
            return Trouble(f"{urlsplit(page).netloc}: {str(error) or type(error).__name__}")
        return error

    def _refused(self, code: int, page: str) -> str:
        if code == 401 and self._token:
            return f"{page}: 401, the hub does not take this token: log in again ({LOGIN})"
        if code == 401:
            return f"{page}: 401, it wants a login: {LOGIN}; where it is gated, accept its terms on {page} too"
        return f"{page}: {code}, this login has not accepted the terms: open {page}, accept them, then run `doit` again"

    def _no_repository(self, code: int, page: str) -> str:
        if code == 401 and self._token:
            return self._refused(code, page)
        return f"{page}: no such repository, or a private one ({code}): check its name, or log in ({LOGIN})"

    def _http(self, code: int, page: str) -> Exception:
        if code in {401, 403}:
            return BuildFailed(self._refused(code, page))
        return Trouble(f"{urlsplit(page).netloc} answered {code}", again=code in RETRIED, code=code)


def _status(error: Any) -> int:
    return int(getattr(getattr(error, "response", None), "status_code", 0) or 0)


def _raw(entry: Any) -> dict[str, object]:
    """An entry of the library's listing in the form of the hub's own JSON."""
    lfs = getattr(entry, "lfs", None)
    if not hasattr(entry, "blob_id"):
        return {"type": "directory", "path": entry.path}
    raw = {"type": "file", "path": entry.path, "size": entry.size, "oid": entry.blob_id}
    return raw | ({"lfs": {"oid": lfs.sha256, "size": lfs.size}} if lfs else {})


Connect = Callable[[], Hub]
