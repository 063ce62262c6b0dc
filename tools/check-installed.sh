#!/bin/sh
# check-installed.sh HARNESS [ready]: try an installed `harness`: its version, doctor, and the table of a stored run.
#
# HARNESS is its path, or its name on PATH. It runs in an empty folder; of the checkout it only reads the stored run.
# With `ready`, doctor must find the lab ready. Without, packages may be missing, which a wheel cannot bring.
set -eu
harness=$(realpath "$(command -v "$1")")
source=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$source/harness/version.py")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

fail() {
    echo "$harness: $*" >&2
    exit 1
}

found=$("$harness" --version)
[ "$found" = "harness $version" ] || fail "expected version harness $version, found $found"

status=0
"$harness" doctor >doctor 2>&1 || status=$?
case $status,${2-} in
0,* | 2,) ;;
*)
    cat doctor >&2
    fail "doctor ended with $status"
    ;;
esac

"$harness" table "$source/docs/figures/make-run" >table
grep -q '^rand-read-4k  *[0-9]' table || fail "expected a row rand-read-4k in the table, found $(cat table)"
echo "version $version, a table, doctor: $(tail -n 1 doctor)"
