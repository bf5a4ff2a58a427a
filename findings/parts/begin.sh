# Sourced by each script: a temporary folder that is removed at the end, and what all scripts do.
set -eu
case ${PYTHON:-} in */*) PYTHON=$(realpath -s "$PYTHON") ;; esac
folder=$(mktemp -d -p "${FINDING_ROOT:-/tmp}" finding.XXXXXX)
at_end() { true; }
trap 'at_end >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
cd "$folder"

# install PACKAGE==VERSION...: for $python. A Python that has these versions (PYTHON=) is used as it
# is; LATEST=1 takes the newest versions.
install() {
    python=${PYTHON:-python3}
    if [ -z "${LATEST:-}" ] && "$python" - "$@" <<'PY' 2>/dev/null; then return; fi
import importlib.metadata, sys
for pin in sys.argv[1:]:
    name, _, version = pin.partition("==")
    assert importlib.metadata.version(name) == version
PY
    [ -z "${LATEST:-}" ] || set -- "${@%%==*}"
    python3 -m venv "$folder/venv"
    python=$folder/venv/bin/python
    "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$@" >&2
    echo "installed: $("$python" -m pip freeze --disable-pip-version-check | grep -iE "^($(printf '%s\n' "${@%%==*}" | paste -sd'|'))==" | paste -sd' ')"
}

# expect FILE: compare what a run printed with the text on stdin; end with 1 if it is another.
expect() {
    if diff - "$1" >difference; then
        cat "$1"
    else
        echo "the behaviour changed: < as written here, > as seen now"
        cat difference
        exit 1
    fi
}
