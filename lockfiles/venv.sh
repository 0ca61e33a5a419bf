#!/bin/sh
# Makes .venv from lockfiles/python.txt, run in the checkout's root. Costs some milliseconds where it is there and current.
# .venv/twinfold-made marks the folder as ours to replace; .venv/twinfold-stamp, written last, says what it was made of,
# so that an interrupted one is made again. PYTHON names the interpreter; without it the newest usable one is taken.
set -u
umask 022
unset PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIREMENT

lock=lockfiles/python.txt
log=.venv/install.log

fail() {
    echo "error: $1" >&2
    exit 1
}

# whether $1 is Python 3.11 or later; a pyenv shim without a version behind it is none
new_enough() { "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
has_venv() { "$1" -I -c 'import ensurepip, venv' >/dev/null 2>&1; }
version() { "$1" -I -c 'import platform; print(platform.python_version())' 2>/dev/null; }
described() { "$1" -I -c 'import os, sys; print(os.path.realpath(sys._base_executable), sys.version.split()[0])' 2>/dev/null; }
digest() { sha256sum "$1" | cut -d ' ' -f 1; }

check_machine() {
    case "$(uname -s) $(uname -m)" in
    'Linux x86_64' | 'Linux aarch64' | 'Linux arm64') ;;
    *) fail "twinfold runs on Linux on x86_64 or aarch64, and this is $(uname -s) on $(uname -m)" ;;
    esac
}

choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        found=$(version "$PYTHON") || fail "PYTHON=$PYTHON is no Python that runs here: name one of version 3.11 or later"
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is version $found: twinfold needs Python 3.11 or later"
        has_venv "$PYTHON" || no_venv "$PYTHON"
        python=$PYTHON
        return
    fi
    lacking='' old=''
    for python in python3.13 python3.12 python3.11 python3; do
        if ! new_enough "$python"; then
            found=$(version "$python") && old="$python is version $found"
        elif has_venv "$python"; then
            return
        else
            lacking=${lacking:-$python}
        fi
    done
    [ -z "$lacking" ] || no_venv "$lacking"
    fail "no Python 3.11 or later on PATH${old:+ ($old)}: install one, or name it with PYTHON=/path/to/python3"
}

no_venv() {
    short=$("$1" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    fail "$1 lacks the venv or ensurepip module: install it (Debian and Ubuntu: apt-get install python$short-venv)"
}

# what .venv has to be made of: the lock, this folder (scripts hold its path) and the interpreter that was chosen then
wanted() { printf 'lock %s\nfolder %s\n' "$(digest "$lock")" "$(pwd -P)"; }

current() {
    [ -f .venv/twinfold-stamp ] && [ "$(head -n 2 .venv/twinfold-stamp)" = "$(wanted)" ] || return 1
    made_by=$(sed -n '3s/^python //p' .venv/twinfold-stamp)
    [ "$(described .venv/bin/python)" = "$made_by" ] || return 1
    [ -z "${PYTHON:-}" ] || [ "$(described "$PYTHON")" = "$made_by" ]
}

# what went wrong in $log, in one line
reason() {
    if grep -qE 'HASHES|hashes are required' "$log"; then
        echo "a download does not match its hash in $lock"
    elif grep -qE 'NewConnectionError|NameResolution|name resolution|Network is unreachable|ConnectTimeout|ProxyError|ReadTimeout|Connection refused' "$log"; then
        echo 'no network: the package index cannot be reached; connect, or set PIP_INDEX_URL to a mirror'
    elif grep -q 'No space left on device' "$log"; then
        echo 'no space left on the disk'
    else
        grep -E '^(ERROR|error)' "$log" | tail -n 1 | cut -c 1-160
    fi
}

pip() {
    .venv/bin/python -P -m pip --disable-pip-version-check --no-input --retries 2 "$@" >>"$log" 2>&1 ||
        fail ".venv could not be made: $(reason) (log: $log)"
}

create() {
    choose_python
    [ ! -e .venv ] || [ -f .venv/twinfold-made ] ||
        fail '.venv is there and was not made by this Makefile: move it away'
    rm -rf .venv && mkdir .venv && : >.venv/twinfold-made || fail 'the folder .venv cannot be made here'
    echo "making .venv with Python $(version "$python") from $lock (once, for some minutes: tail -f $log shows it)"
    "$python" -m venv .venv >"$log" 2>&1 || fail ".venv could not be made: $(tail -n 1 "$log") (log: $log)"
    pip install --require-hashes --only-binary :all: -r "$lock"
    link
    { wanted && echo "python $(described .venv/bin/python)"; } >.venv/twinfold-stamp.new
    mv .venv/twinfold-stamp.new .venv/twinfold-stamp
}

# the project itself: its commands, in .venv/bin
link() {
    rm -f .venv/twinfold-project
    pip install --no-deps --no-build-isolation --no-index -e .
    digest pyproject.toml >.venv/twinfold-project
}

check_machine
# two makes at once: the second waits, and then finds all done
exec 9<"$lock" || fail "$lock is missing: this is not a whole checkout"
if command -v flock >/dev/null; then flock 9; fi
if ! current; then
    create
elif [ "$(cat .venv/twinfold-project 2>/dev/null)" != "$(digest pyproject.toml)" ]; then
    link
fi
