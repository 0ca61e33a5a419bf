"""A shell recipe's settings file read as bash would set it, with nothing executed: ``scripts/local.sh`` and ``.env``. Pure.

Understood are assignments with quotes, escapes, ``export``, several on a line, ``${NAME}`` of what is known and the default
forms ``${NAME:-word}`` and ``: "${NAME:=word}"``. All else is reported with its line and leaves its key unset: a command
substitution is never run, and what it would have printed is never read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_DEFAULT = re.compile(r"([A-Za-z_]\w*)(?:(:?[-=])(.*))?", re.DOTALL)
SUBSTITUTED = "a command substitution is never run by an import"
LITERAL = "single quotes: bash keeps {} as it stands"
SPACED = "spaces round the equals sign: bash runs a command of that name"
NOT_RUN = "no assignment: it is never run by an import"


@dataclass(frozen=True, slots=True)
class Setting:
    """One assignment that counts: the last of a key wins."""

    line: int
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something a person should know about a line. ``key`` is "" where the line names none."""

    line: int
    key: str
    why: str


@dataclass(frozen=True, slots=True)
class RecipeFile:
    """What a file sets, in its order, and what was left out or is worth a look."""

    settings: tuple[Setting, ...]
    notes: tuple[Note, ...]

    @property
    def values(self) -> dict[str, str]:
        """The value of each key as bash would leave it."""
        return {one.key: one.value for one in self.settings}


def read_shell(text: str, environ: Mapping[str, str]) -> RecipeFile:
    """Read ``scripts/local.sh``. ``environ`` holds what its expansions may use, as HOME."""
    reader = _Reader(text.removeprefix("\ufeff").replace("\r\n", "\n"), dict(environ))
    for line, words in reader.commands():
        reader.take(line, words)
    return RecipeFile(tuple(reader.settings), tuple(reader.notes))


def read_env(text: str) -> RecipeFile:
    """Read ``.env``: a name, "=" and the rest of the line, less one pair of quotes; nothing is expanded."""
    settings: list[Setting] = []
    notes: list[Note] = []
    for number, raw in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        line = raw.strip().removeprefix("export ").strip()
        match = _ASSIGNMENT.fullmatch(line)
        if match:
            quoted = re.fullmatch(r"(['\"])(.*)\1", match[2].strip())
            settings.append(Setting(number, match[1], quoted[2] if quoted else match[2].strip()))
        elif line and not line.startswith("#"):
            notes.append(Note(number, "", NOT_RUN))
    return RecipeFile(tuple(settings), tuple(notes))


@dataclass(slots=True)
class _Word:
    """One word of a command; ``why`` says what keeps it from being known, ``literal`` holds a name that was not expanded."""

    text: str = ""
    why: str = ""
    literal: str = ""
    plain: bool = True  # no part of it was quoted


@dataclass(slots=True)
class _Reader:
    text: str
    known: dict[str, str]
    at: int = 0
    line: int = 1
    settings: list[Setting] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def commands(self) -> Iterator[tuple[int, list[_Word]]]:
        """Each simple command with the line it begins on."""
        words: list[_Word] = []
        began = self.line
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in "\n;&|":
                if words:
                    yield began, words
                words = []
                self._step()
            elif char in " \t":
                self._step()
            elif char == "#":
                self._skip_to_line_end()
            else:
                began = began if words else self.line
                words.append(self._word())
        if words:
            yield began, words

    def take(self, line: int, words: list[_Word]) -> None:
        """Keep a command's assignments, or say why it has none."""
        exported = words[0].text in {"export", "declare", "readonly"} and words[0].plain
        parts = [word for word in words[1:] if "=" in word.text] if exported else words
        matches = [_ASSIGNMENT.fullmatch(word.text) for word in parts]
        if words[0].text == ":":
            return  # its expansions have been taken while the word was read
        if parts and all(matches):
            for word, match in zip(parts, matches, strict=True):
                assert match is not None
                self._assign(line, match[1], match[2], word)
            return
        spaced = len(words) > 1 and words[1].text.startswith("=") and _NAME.fullmatch(words[0].text)
        named = _ASSIGNMENT.fullmatch(parts[0].text) if parts else None
        key = words[0].text if spaced else named[1] if named else ""
        self.notes.append(Note(line, key, SPACED if spaced else NOT_RUN))

    def _assign(self, line: int, key: str, value: str, word: _Word) -> None:
        if word.why:
            self.notes.append(Note(line, key, word.why))
            return
        if word.literal:
            self.notes.append(Note(line, key, LITERAL.format(word.literal)))
        self.known[key] = value
        self.settings.append(Setting(line, key, value))

    def _word(self) -> _Word:
        word = _Word()
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\n;&|":
                break
            if char == "'":
                self._single(word)
            elif char == '"':
                self._double(word)
            elif char == "\\":
                self._escape(word)
            elif char in "$`":
                self._expand(word)
            elif (
                char == "~"
                and (not word.text or word.text.endswith("="))
                and self.text[self.at + 1 : self.at + 2] in {"/", "", "\n"}
            ):
                word.text += self.known.get("HOME", "~")
                self._step()
            else:
                word.text += char
                self._step()
        return word

    def _single(self, word: _Word) -> None:
        end = self.text.find("'", self.at + 1)
        inner = self.text[self.at + 1 : end if end >= 0 else len(self.text)]
        name = re.search(r"\$\{?[A-Za-z_]\w*\}?", inner)
        word.literal = name[0] if name else word.literal
        word.text += inner
        word.plain = False
        word.why = word.why or ("" if end >= 0 else "a quote without an end")
        self._step(len(inner) + (2 if end >= 0 else 1))

    def _double(self, word: _Word) -> None:
        word.plain = False
        self._step()
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in {'"', "\\", "$", "`", "\n"}:
                self._escape(word)
            elif char in "$`":
                self._expand(word)
            else:
                word.text += char
                self._step()
        if self.at >= len(self.text):
            word.why = word.why or "a quote without an end"
        self._step()

    def _escape(self, word: _Word) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        word.text += "" if following == "\n" else following
        word.plain = False
        self._step(2)

    def _expand(self, word: _Word) -> None:
        rest = self.text[self.at :]
        if rest.startswith(("$(", "`")):
            word.why = SUBSTITUTED
            self._step(_closing(rest))
            return
        braced = re.match(r"\$\{([^}]*)\}", rest)
        bare = re.match(r"\$([A-Za-z_]\w*)", rest)
        if braced is None and bare is None:
            word.text += "$"
            self._step()
            return
        match = braced or bare
        assert match is not None
        self._value(word, match[1])
        self._step(len(match[0]))

    def _value(self, word: _Word, inner: str) -> None:
        parts = _DEFAULT.fullmatch(inner)
        if parts is None:
            word.why = f"${{{inner}}} is a form that an import does not read"
            return
        name, operator, default = parts[1], parts[2] or "", parts[3] or ""
        value = self.known.get(name)
        if operator and (value is None or (operator.startswith(":") and not value)):
            if "$" in default or "`" in default:
                word.why = SUBSTITUTED if "$(" in default or "`" in default else f"the default of {name} is not read"
                return
            value = default
            if operator.endswith("="):
                self.known[name] = value
                self.settings.append(Setting(self.line, name, value))
        if value is None:
            word.why = f"${name} is not known here"
            return
        word.text += value

    def _skip_to_line_end(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _step(self, count: int = 1) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count


def _closing(rest: str) -> int:
    """The length of a command substitution at the start of ``rest``, nested ones within it."""
    if rest.startswith("`"):
        end = rest.find("`", 1)
        return len(rest) if end < 0 else end + 1
    depth = 0
    for at, char in enumerate(rest):
        depth += (char == "(") - (char == ")")
        if depth == 0 and char == ")":
            return at + 1
    return len(rest)
