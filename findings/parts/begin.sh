# Sourced by each script: a temporary folder that is removed at the end, and what all scripts do.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case ${PYTHON:-} in */*) PYTHON=$(realpath -s "$PYTHON") ;; esac
folder=$(mktemp -d -p "${FINDING_ROOT:-/tmp}" finding.XXXXXX)
at_end() { true; }
trap 'at_end >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
cd "$folder"

# install PACKAGE==VERSION...: into an environment of the folder, $python. What the Python in PYTHON has
# in the versions that are wanted is not installed again. LATEST=1 wants the newest.
install() {
    python3 -m venv "$folder/venv"
    python=$folder/venv/bin/python
    if [ -n "${PYTHON:-}" ]; then
        "$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
            >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/other.pth"
    fi
    [ -z "${LATEST:-}" ] || set -- --upgrade "${@%%==*}"
    "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$@" >&2
    [ "$1" != --upgrade ] || shift
    "$python" - "${@%%==*}" <<'PY'
import importlib.metadata, sys
print("with", *(f"{name} {importlib.metadata.version(name)}" for name in sys.argv[1:]))
PY
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
