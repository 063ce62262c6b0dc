#!/bin/sh
# make-root.sh SUITE FOLDER [MMDEBSTRAP-OPTION...]: install Debian's SUITE into a new FOLDER.
#
# It is fetched from where this machine's apt fetches Debian, so that it works behind any mirror. SUITE is a
# release's name (bookworm, trixie, testing, sid); releases get their security updates, too.
# mmdebstrap(1) decides itself whether it needs user namespaces. An unfinished FOLDER is removed.
#
# Lists of testing and sid are valid for a week. A mirror that is further behind is refused, unless this is among the
# options: --aptopt='Acquire::Check-Valid-Until false' (tools/try-on.sh --stale). Signatures are checked all the same.
set -eu
if [ $# -lt 2 ]; then
    echo "usage: $0 SUITE FOLDER [MMDEBSTRAP-OPTION...]" >&2
    exit 2
fi
suite=$1
folder=$2
shift 2
if ! command -v mmdebstrap >/dev/null; then
    echo 'expected mmdebstrap, but it is not installed: apt-get install mmdebstrap' >&2
    exit 2
fi
if [ -e "$folder" ]; then
    echo "expected a new folder, but $folder exists: remove it first" >&2
    exit 2
fi

mirror() { apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Label: $1" | head -n 1; }

debian=$(mirror Debian)
security=$(mirror Debian-Security)
if [ -z "$debian" ] || [ -z "$security" ]; then
    echo "expected sources of Debian and its security updates in this machine's apt, found none: see sources.list(5)" >&2
    exit 2
fi
case $suite in
testing | sid | unstable) more='' ;;
*) more="deb $security $suite-security main" ;;
esac

mkdir -p "$(dirname "$folder")"
trap 'rm -rf --one-file-system "$folder"' EXIT
status=0
mmdebstrap --quiet "$@" "$suite" "$folder" "deb $debian $suite main" ${more:+"$more"} >&2 || status=$?
if [ "$status" -ne 0 ]; then
    # Quiet, mmdebstrap keeps to itself what apt said.
    case "$more $*" in
    deb* | *Check-Valid-Until*) ;;
    *) echo "If this mirror's lists of $suite are past their date, try-on.sh --stale takes them all the same." >&2 ;;
    esac
    exit "$status"
fi
trap - EXIT
