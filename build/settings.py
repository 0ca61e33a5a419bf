"""Settings with origins: defaults, then ``config.toml``, then the environment, then flags.

A group of settings is a frozen dataclass whose fields are made with :func:`setting`; a field carries its parser, its help
and how a change of it takes effect. :func:`load` fills any number of groups from one :class:`Sources` and remembers where
each value came from. The build's own group, :class:`Places`, is here too; the supervisor brings more.
"""

from __future__ import annotations

import dataclasses
import enum
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from build.errors import UsageError

T = TypeVar("T")
G = TypeVar("G")

PREFIX = "TWINFOLD_"
# Names of the shell recipe that other software sets too: reported when seen, and ignored. TWINFOLD_<NAME> counts in their place.
AMBIENT = frozenset({"HOST", "PORT", "MASTER_ADDR", "MASTER_PORT", "LOG_DIR", "HF_HOME"})
# Names that belong to the lock: they feed `doit lock` and are refused elsewhere.
LOCK_NAMES = frozenset(
    {"MODEL_ID", "MODEL_REVISION", "TF_REPO", "TF_REF", "BASE_IMAGE", "ABLIT_ID", "ABLIT_REVISION", "ZIG_VERSION", "ZIG_SHA256"}
)
# Words that follow the engine into every rank as they are; they are settings of the gang by prefix, not by name.
ENGINE_PREFIXES = ("TF_", "TENSORFOLD_", "NCCL_")


class Change(enum.Enum):
    """What has to come before a changed value counts: nothing, a restart of the gang, a run of the supervisor, or a build."""

    LIVE = "live"
    RESTART = "restart"
    RUN = "run"
    BUILD = "build"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: ``kind`` is default, file, environment or flag; ``where`` says it for a person."""

    kind: str
    where: str


DEFAULT = Origin("default", "default")


@dataclass(frozen=True, slots=True)
class Parser(Generic[T]):
    """Turns a TOML value, an environment string or a flag into a ``T``; its ``ValueError`` says what was wanted."""

    parse: Callable[[object], T]


@dataclass(frozen=True, slots=True)
class Sources:
    """All that settings are read from, taken once at the edge. ``flags`` holds only what was given."""

    file: Path | None
    environ: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[G]):
    """One group with the origin of each of its fields."""

    value: G
    origins: Mapping[str, Origin]


def setting(
    parser: Parser[T], default: T, help: str, *, change: Change = Change.RESTART, recipe: bool = True, file_only: bool = False
) -> T:
    """A field of a settings group.

    ``recipe``: the bare upper-case name counts in the environment too. ``file_only``: a table, which only the file can hold.
    """
    made: T = field(
        default=default, metadata={"parser": parser, "help": help, "change": change, "recipe": recipe, "file_only": file_only}
    )
    return made


def whole(low: int, high: int) -> Parser[int]:
    """A whole number from ``low`` to ``high``; strings are decimal, no suffixes."""

    def parse(raw: object) -> int:
        digits = str(raw).strip()
        if isinstance(raw, (bool, float)) or not re.fullmatch(r"[+-]?\d{1,40}", digits) or not low <= int(digits) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(digits)

    return Parser(parse)


def number(low: float, high: float) -> Parser[float]:
    """A finite number from ``low`` to ``high``."""

    def parse(raw: object) -> float:
        wanted = f"a number from {low:g} to {high:g}"
        if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
            raise ValueError(wanted)
        try:
            value = float(raw)
        except (ValueError, OverflowError):
            raise ValueError(wanted) from None
        if not low <= value <= high:
            raise ValueError(wanted)
        return value

    return Parser(parse)


def _flag(raw: object) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(raw, bool):
        return raw
    found = words.get(str(raw).strip().lower())
    if found is None:
        raise ValueError("true or false")
    return found


def _text(raw: object) -> str:
    if not isinstance(raw, str) or "\x00" in raw or "\n" in raw:
        raise ValueError("one line of text")
    return raw.strip()


def _path(raw: object) -> Path:
    if not _text(raw):
        raise ValueError("a path")
    try:
        return Path(_text(raw)).expanduser()
    except RuntimeError:  # "~" of nobody, or of somebody unknown here
        raise ValueError('a path whose "~" is a home folder that is known here') from None


def _word(raw: object) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", _text(raw)):
        raise ValueError("a name of letters, digits, dots and dashes")
    return _text(raw)


flag = Parser(_flag)
flag_or_nothing = Parser(lambda raw: raw != "" and _flag(raw))  # as variables of other software are read: empty is not set
text = Parser(_text)
path = Parser(_path)
word = Parser(_word)


def one_of(*choices: str) -> Parser[str]:
    """One of the given words."""

    def parse(raw: object) -> str:
        if raw not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return str(raw)

    return Parser(parse)


def optional(parser: Parser[T]) -> Parser[T | None]:
    """``parser``, or nothing where the value is empty."""
    return Parser(lambda raw: None if raw == "" else parser.parse(raw))


def word_or(choice: str, parser: Parser[T]) -> Parser[T | str]:
    """The word itself, or what ``parser`` takes."""

    def parse(raw: object) -> T | str:
        if raw == choice:
            return choice
        try:
            return parser.parse(raw)
        except ValueError as error:
            raise ValueError(f'"{choice}" or {error}') from None

    return Parser(parse)


def _pairs(raw: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(raw, dict) or not all(isinstance(v, (str, int, float)) for v in raw.values()):
        raise ValueError("a table of names and values")
    return tuple((str(k), str(int(v)) if isinstance(v, bool) else str(v)) for k, v in sorted(raw.items()))


# A TOML table of scalars as sorted pairs of strings, for environment variables of the engine.
pairs = Parser(_pairs)


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """``$XDG_DATA_HOME/twinfold``, else ``~/.local/share/twinfold``: outside the checkout, which people delete."""
    base = environ.get("XDG_DATA_HOME", "")
    if base.startswith("/"):
        return Path(base) / "twinfold"
    try:
        return Path("~/.local/share/twinfold").expanduser()
    except RuntimeError:  # a user id without an entry, and no HOME: containers have such
        raise UsageError("there is no home folder to keep the state in: set HOME or TWINFOLD_STATE_DIR") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where things are, and which target is meant."""

    target: str = setting(word, "demo", "the target: lockfiles/<target>.toml", change=Change.BUILD, recipe=False)
    state_dir: Path | None = setting(
        optional(path), None, "store, generations, logs and run files (default: ~/.local/share/twinfold)", change=Change.BUILD
    )
    world: int | None = setting(
        optional(whole(1, 4)), None, "ranks: 1, 2 or 4 (default: as the target says)", change=Change.BUILD, recipe=False
    )
    hf_cache: Path | None = setting(
        optional(path), None, "the hub's cache, kept as it is (default: ~/.cache/huggingface/hub)", change=Change.BUILD
    )
    hf_hub_offline: bool = setting(
        flag_or_nothing, False, "never ask the hub: what its cache lacks is an error at once", change=Change.BUILD
    )
    hub_transport: str = setting(
        one_of("http", "xet"),
        "http",
        "how files of the hub come: http, by ranges that resume after a kill; xet, by the hub's own client",
        change=Change.BUILD,
        recipe=False,
    )
    build_socket: Path | None = setting(
        optional(path), None, "socket of the Docker daemon that compiles an engine (default: /var/run/docker.sock)",
        change=Change.BUILD, recipe=False,
    )  # fmt: skip
    kit_files: Path | None = setting(
        optional(path), None, "folder of what the kit's own tools made (RoPE tables, routing bias)", change=Change.BUILD
    )
    pack_rank_caches: str = setting(
        one_of("head", "node"),
        "head",
        "where weight files are packed: head, all here; node, each on the host of its rank, which is sent the whole checkpoint",
        change=Change.BUILD,
        recipe=False,
    )
    ablit: bool = setting(flag, False, "serve the abliterated variant of the checkpoint", change=Change.BUILD)

    def state(self, environ: Mapping[str, str]) -> Path:
        """The state folder, absolute."""
        return (self.state_dir or default_state_dir(environ)).absolute()

    @property
    def variant(self) -> str:
        """The variant of the checkpoint that is meant, as bundles name it."""
        return "ablit" if self.ablit else "base"

    @property
    def hub_cache(self) -> Path:
        """The hub's cache, absolute. HF_HOME does not move it: a service manager's would win over the configuration unseen."""
        return (self.hf_cache or Path("~/.cache/huggingface/hub").expanduser()).absolute()


def names(*groups: type) -> frozenset[str]:
    """Every key that the groups define."""
    return frozenset(f.name for group in groups for f in dataclasses.fields(group))


def load(groups: Iterable[type], sources: Sources, others: Callable[[], frozenset[str]] = frozenset) -> dict[type, Loaded[Any]]:
    """Fill each group; a key that neither the groups nor ``others`` have is an error that names the nearest one.

    ``others``: keys of groups that are not filled here; asked only where a key is none of the groups' own.
    """
    groups = tuple(groups)
    mine = names(*groups)
    lines, table = _read(sources.file)
    for key in table:
        if key not in mine and key not in others():
            raise UsageError(_unknown(key, sources.file, lines.get(key), mine | others()))
    _refuse_lock_names(sources.environ)
    for name in sources.environ:
        key = name.removeprefix(PREFIX).lower()
        if name.startswith(PREFIX) and key not in mine and key not in others():
            raise UsageError(_unknown(key, None, None, mine | others(), f"environment {name}"))
    return {group: _fill(group, sources, table, lines) for group in groups}


def ambient_seen(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the recipe that are set here by who knows whom, and that are therefore ignored."""
    return tuple(sorted(n for n in AMBIENT if environ.get(n) and PREFIX + n not in environ))


def _fill(group: type, sources: Sources, table: Mapping[str, object], lines: Mapping[str, int]) -> Loaded[Any]:
    values: dict[str, object] = {}
    origins: dict[str, Origin] = {}
    for item in dataclasses.fields(group):
        raw, origin = _find(item, sources, table, lines)
        origins[item.name] = origin
        if origin is DEFAULT:
            continue
        try:
            values[item.name] = item.metadata["parser"].parse(raw)
        except ValueError as error:
            raise UsageError(f"{item.name} = {_shown(raw)} ({origin.where}): wanted {error}") from None
    return Loaded(group(**values), origins)


def _find(
    item: dataclasses.Field[Any], sources: Sources, table: Mapping[str, object], lines: Mapping[str, int]
) -> tuple[object, Origin]:
    """The raw value that counts for one field, and where it stands."""
    if item.name in sources.flags:
        return sources.flags[item.name], Origin("flag", "command line")
    upper = item.name.upper()
    bare = [upper] if item.metadata["recipe"] and upper not in AMBIENT else []
    for name in () if item.metadata["file_only"] else [PREFIX + upper, *bare]:
        if name in sources.environ:
            return sources.environ[name], Origin("environment", f"environment {name}")
    if item.name in table:
        return table[item.name], Origin("file", f"{sources.file}, line {lines.get(item.name, 1)}")
    return None, DEFAULT


def _read(file: Path | None) -> tuple[dict[str, int], dict[str, object]]:
    """Top-level keys with their line numbers, and the values. No file is an empty one."""
    if file is None:
        return {}, {}
    try:
        if file.is_fifo() or file.is_dir():  # opening a pipe would wait for its writer
            raise UsageError(f"{file} is no file of settings: move it away")
        content = file.read_text(encoding="utf-8-sig")
        table = tomllib.loads(content)
    except FileNotFoundError:
        return {}, {}
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text (byte {error.start}): write it anew") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not valid TOML: {error}") from None
    except (ValueError, RecursionError):  # an integer of thousands of digits, thousands of brackets
        raise UsageError(f"{file} is not valid TOML: a number is too long or brackets stand too deep") from None
    lines: dict[str, int] = {}
    for number_, line in enumerate(content.splitlines(), 1):
        match = re.match(r"\s*(?:\[+\s*)?[\"']?([A-Za-z0-9_-]+)", line)
        if match and match[1] in table:
            lines.setdefault(match[1], number_)
    return lines, table


def _unknown(key: str, file: Path | None, line: int | None, known: Iterable[str], where: str = "") -> str:
    import difflib  # only a mistake pays for it

    near = difflib.get_close_matches(key.lower().replace("-", "_"), sorted(known), n=1, cutoff=0.6)
    place = where or f"{file}, line {line or 1}"
    named = key if re.fullmatch(r"[\w.-]+", key) else _shown(key)
    return f"unknown setting {named} ({place})" + (f": did you mean {near[0]}?" if near else ": docs/settings.md lists them all")


def _refuse_lock_names(environ: Mapping[str, str]) -> None:
    for name in sorted(LOCK_NAMES):
        if environ.get(name) or environ.get(PREFIX + name):
            raise UsageError(
                f"{name} is set in the environment: it belongs to the lock: give it to `doit lock`, and unset it here"
            )


def _shown(raw: object) -> str:
    quoted = f'"{raw}"' if isinstance(raw, str) else str(raw)
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in quoted)  # one line, whatever it holds
    return shown if len(shown) <= 80 else shown[:77] + "…"
