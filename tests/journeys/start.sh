# What each journey begins with: a limit on its time, a folder of its own, and nothing left behind.
# A journey sets LIMIT_S and sources this file. `reshape` is the one on PATH.
if [ -z "${JOURNEY_S:-}" ]; then
  JOURNEY_S=$LIMIT_S exec timeout --kill-after=30 "$LIMIT_S" bash "$0" "$@"
fi
set -euo pipefail
begin=$SECONDS daemon=
repository=$(realpath "$(dirname "$0")/../..")
folder=$(mktemp -d)
export RESHAPE_HOME=$folder/home RESHAPE_PORT=0 COLUMNS=100
cd "$folder"
ln -s "$repository/examples" examples

finish() {  # end what still runs: a job outlives its daemon
  local code=$?
  trap - EXIT TERM
  if [ -n "$daemon" ]; then
    reshape cancel "${job:-none}" >/dev/null 2>&1 || true
    sleep 3
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" || true
    [ "$code" -eq 0 ] || cat up.log || true
  fi
  rm -rf "$folder"
  [ "$code" -eq 0 ] || echo "FAILED with $code after $((SECONDS - begin)) s of $LIMIT_S s" >&2
  exit "$code"
}
trap finish EXIT
trap 'exit 124' TERM

step() {  # step TEXT: what the user does next
  printf '%3d s  %s\n' $((SECONDS - begin)) "$1"
}

is() {  # is FIELD VALUE: whether the job's field has this value
  reshape get "$job" -o json 2>/dev/null | python3 -c '
import json, sys
text = sys.stdin.read()
found = json.loads(text)[sys.argv[1]] if text else None
sys.exit(str(found) != sys.argv[2])' "$1" "$2"
}

await() {  # await FIELD VALUE: look until it has; a job that failed never will
  until is "$1" "$2"; do
    ! is state failed || { reshape describe "$job"; reshape logs "$job"; exit 1; }
    sleep 0.5
  done
}

check() {  # check FIELD VALUE: fail where it has another
  is "$1" "$2" || { echo "$1 is not $2" >&2; reshape describe "$job"; exit 1; }
}

up() {  # up OPTION...: the daemon, which a user starts in a terminal of its own
  reshape up "$@" >up.log 2>&1 &
  daemon=$!
  until reshape status >/dev/null 2>&1; do
    kill -0 "$daemon" || exit 1
    sleep 0.3
  done
}
