"""What a node's copy must be: ranges, differences, fingerprints, what is read from the node's words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.bundle import Bundle, Engine, StoreRef, needed
from build.errors import Refused
from build.replication import far_store, replica, replicate
from build.replication.replica import CHUNK_BYTES, Finding, Fingerprints, Held, Seen, Wrong
from build.store.fingerprints import RACY_NS
from build.store.hashing import Entry, tree_hash
from build.store.record import Record

KEY = "a" * 32
SHA = "5" * 64
SECOND = 1_000_000_000
NOTHING = Fingerprints()


def record(*files: Entry) -> Record:
    return Record(KEY, "x", "test", 1, {}, {}, files, tree_hash(files))


def whole(path: str, size: int = 5, *, ino: int = 7, sha256: str = "") -> Seen:
    return Seen(path, "file", size, 0o444, (ino, size, SECOND, SECOND), sha256)


def held(*names: Seen, prints: Fingerprints = NOTHING, mode: int = 0o555, sha: str = SHA) -> Held:
    return Held(f"{KEY}-x", mode, sha, prints, names)


FILE = Entry("f", "file", 5, "1" * 64)
KNOWN = Fingerprints("fs", {"f": whole("f").identity})


@given(sizes=st.lists(st.integers(0, 3 * CHUNK_BYTES + 1), max_size=4), data=st.data())
def test_ranges_cover_each_missing_byte_once_and_none_that_arrived(sizes: list[int], data: st.DataObject) -> None:
    wanted = record(*(Entry(f"f{n}", "file", size, "1" * 64) for n, size in enumerate(sizes)))
    every = list(replica.chunks(wanted, frozenset()))
    assert sum(c.length for c in every) == sum(sizes)
    assert all(c.offset % CHUNK_BYTES == 0 and 0 < c.length <= CHUNK_BYTES for c in every)
    done = frozenset((c.path, c.offset, c.length) for c in every if data.draw(st.booleans()))
    assert [c for c in every if (c.path, c.offset, c.length) not in done] == list(replica.chunks(wanted, done))


def test_a_whole_file_that_arrived_is_not_sent() -> None:
    big = record(Entry("f", "file", 2 * CHUNK_BYTES, "1" * 64))
    assert list(replica.chunks(big, frozenset({("f", 0, 2 * CHUNK_BYTES)}))) == []


@pytest.mark.parametrize(
    ("there", "finding"),
    [
        (held(whole("f"), prints=KNOWN), Finding(f"{KEY}-x")),
        (held(whole("f")), Finding(f"{KEY}-x", suspects=("f",))),
        (held(whole("f", ino=8), prints=KNOWN), Finding(f"{KEY}-x", suspects=("f",))),
        (held(whole("f"), prints=Fingerprints("other", KNOWN.files)), Finding(f"{KEY}-x", suspects=("f",))),
        (held(whole("f"), prints=KNOWN, sha="6" * 64), Finding(f"{KEY}-x", suspects=("f",), record_ok=False)),
        (held(whole("f"), prints=KNOWN, sha=""), Finding(f"{KEY}-x", absent=True)),
        (held(mode=-1), Finding(f"{KEY}-x", absent=True)),
        (held(), Finding(f"{KEY}-x", wrong=(Wrong("f", "is missing"),))),
        (held(whole("f", 6)), Finding(f"{KEY}-x", wrong=(Wrong("f", "has 6 bytes, had 5"),))),
    ],
)
def test_the_quick_look_trusts_only_files_that_are_as_they_were_when_read(there: Held, finding: Finding) -> None:
    assert replica.judge(record(FILE), SHA, there, "fs") == finding


def test_read_bytes_decide_where_there_are_any() -> None:
    assert list(replica.differences([FILE], held(whole("f", sha256="1" * 64)))) == []
    assert list(replica.differences([FILE], held(whole("f", sha256="2" * 64)))) == [Wrong("f", "has other content")]


def test_a_file_that_changed_a_moment_before_it_was_read_has_no_fingerprint() -> None:
    fresh = whole("f", sha256="1" * 64)
    assert replica.take("fs", [fresh], SECOND + RACY_NS + 1).files == {"f": fresh.identity}
    assert replica.take("fs", [fresh], SECOND + RACY_NS - 1).files == {}


@given(st.dictionaries(st.text(), st.tuples(*[st.integers(0, 2**62)] * 4), max_size=5))
def test_fingerprints_survive_their_file(files: dict[str, tuple[int, int, int, int]]) -> None:
    prints = Fingerprints("fs", files)
    content = replica.fingerprints_to_json(prints)
    assert content.count(b"\n") == 1
    assert replica.fingerprints_from_json(content.decode()) == prints


@given(st.text())
def test_broken_fingerprints_count_as_none(content: str) -> None:
    assert replica.fingerprints_from_json("{" + content) == Fingerprints()


@given(st.text(alphabet="ab\t01\n"))
def test_progress_that_was_cut_short_is_never_more_than_arrived(printed: str) -> None:
    whole_lines = printed.split("\n")[:-1]
    assert all("\t".join(map(str, done[:1])) in printed for done in far_store.read_progress(printed))
    assert len(far_store.read_progress(printed)) <= len(whole_lines)
    assert far_store.read_progress("f\t0\t5\nf\t5\t1") == {("f", 0, 5)}


def test_a_survey_is_read_with_any_name_in_it() -> None:
    name = {
        "path": "sub/ü\\t\udce9 x",
        "type": "file",
        "size": 5,
        "mode": 0o444,
        "ino": 7,
        "mtime_ns": SECOND,
        "ctime_ns": SECOND,
    }
    printed = f"T {SHA}\nS 9f\nE {KEY}-x\nR {SHA}\nP {{}}\nM 555\nF {json.dumps(name)}\nE {KEY}-y\n"
    found = far_store.read_survey(printed, SHA)
    assert (found.tool_ok, found.file_system) == (True, "9f")
    assert found.held[f"{KEY}-x"].names == (whole("sub/ü\\t\udce9 x"),)
    assert found.held[f"{KEY}-y"] == Held(f"{KEY}-y")


def test_a_rank_needs_its_own_weights_and_no_others() -> None:
    def ref(name: str) -> StoreRef:
        return StoreRef(name)

    engine = Engine(ref("server"), ref("follower"), ref("packer"), ref("checker"))
    bundle = Bundle(
        "demo",
        "plain",
        "m",
        2,
        8,
        400,
        engine,
        ref("model"),
        (ref("r0"), ref("r1")),
        (1, 1),
        ref("kit"),
        ref("map"),
        ref("engram"),
    )
    assert needed(bundle, 1) == ("engram", "kit", "map", "model", "r1")
    assert needed(bundle, 1, processes=True) == ("engram", "follower", "kit", "map", "model", "r1")
    assert "server" in needed(bundle, 0, processes=True)


def test_what_must_not_be_copied_is_refused_with_what_is_wrong() -> None:
    replicate.require("spark-b", [Finding("e")])
    with pytest.raises(Refused, match="spark-b: e is not there, and 1 more: run `doit replicate`"):
        replicate.require("spark-b", [Finding("e", absent=True), Finding("f", record_ok=False)])
