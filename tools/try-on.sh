#!/bin/sh
# try-on.sh [--as WHO] [--stale] SUITE [COMMAND...]: do what the README says on a Debian SUITE that has nothing yet.
#
# A root file system with git, make, Python, sudo and what Debian requires is installed once and kept in the
# user's cache folder (remove it there to install it again). Each use gets a copy with a clone of the last
# commit. COMMAND (default: `make run`) runs in the clone; the copy is removed when it ends. It uses the
# machine's network, the machine's settings of apt and pip, and its environment variables for them.
#
# --stale takes lists of packages that are past their date, of a mirror that is behind: those of testing and sid are
# valid for a week. Their signatures are checked all the same.
#
# WHO is root; sudoer, who may use sudo; or user, who may not: then root installs the packages first.
# Exits with the status of COMMAND.
set -eu

fail() {
    echo "$*" >&2
    exit 2
}

who=root
stale=''
while true; do
    case ${1-} in
    --as)
        [ $# -ge 2 ] || break
        who=$2
        shift 2
        ;;
    --stale)
        stale='Acquire::Check-Valid-Until false;'
        shift
        ;;
    *) break ;;
    esac
done
case ${1-} in
'' | -*) fail "usage: $0 [--as root|sudoer|user] [--stale] SUITE [COMMAND...]" ;;
esac
suite=$1
shift
[ $# -ge 1 ] || set -- make run
case $who in
root) home=/root ;;
sudoer | user) home=/home/$who ;;
*) fail "expected --as root, sudoer or user, found $who" ;;
esac
[ "$(id -u)" -eq 0 ] || fail 'expected root, who may mount and change the root: try it with sudo'

tools=$(cd "$(dirname "$0")" && pwd)
include=git,make,python3,sudo
cache=${XDG_CACHE_HOME:-$HOME/.cache}/harness/roots
root=$cache/$suite,$include
mkdir -p "$cache"

# One at a time: make the root if there is none, and a folder for this use, which is locked while it lasts.
# Folders that nobody holds are of uses that were killed.
exec 8>"$cache/lock"
flock 8
for left in "$cache"/use.*; do
    [ -d "$left" ] || continue
    if flock --nonblock "$left" true; then rm -rf --one-file-system "$left"; fi
done
if [ ! -d "$root" ]; then
    rm -rf --one-file-system "$root.part"
    "$tools/make-root.sh" "$suite" "$root.part" --variant=minbase --include="$include" ${stale:+--aptopt="$stale"}
    mv "$root.part" "$root"
fi
use=$(mktemp -d "$cache/use.XXXXXX")
chmod 755 "$use"
exec 9<"$use"
flock 9
exec 8>&-

entered=''
end() {
    trap '' HUP INT TERM
    if [ -n "$entered" ]; then
        kill -KILL "$entered" 2>/dev/null || true
        wait "$entered" || true
    fi
    # Its processes may be about to end.
    for _ in 1 2 3 4 5; do
        rm -rf --one-file-system "$use" 2>/dev/null && break
        sleep 1
    done
}
trap end EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

copy=$use/$suite
cp -a --reflink=auto "$root" "$copy"

# The machine's ways to packages: name servers, settings and certificates of apt and pip.
cp /etc/resolv.conf "$copy/etc/resolv.conf"
printf '127.0.0.1 localhost %s\n' "$suite" >"$copy/etc/hosts"
apt-config dump | grep -E '^Acquire::(http|https|Check-|Retries|Force)' >"$copy/etc/apt/apt.conf.d/99machine" || true
[ -z "$stale" ] || printf '%s\n' "$stale" >>"$copy/etc/apt/apt.conf.d/99machine"
for path in /etc/apt/auth.conf.d /etc/pip.conf /usr/local/share/ca-certificates /etc/ssl/certs/ca-certificates.crt; do
    [ -e "$path" ] || continue
    mkdir -p "$copy$(dirname "$path")"
    cp -a --dereference "$path" "$copy$(dirname "$path")"
done
# No service is started: it would be in the machine's network.
printf '#!/bin/sh\nexit 101\n' >"$copy/usr/sbin/policy-rc.d"
chmod 755 "$copy/usr/sbin/policy-rc.d"

if [ "$who" != root ]; then
    chroot "$copy" useradd --create-home --shell /bin/bash "$who"
fi
if [ "$who" = sudoer ]; then
    echo 'sudoer ALL=(ALL) NOPASSWD: ALL' >"$copy/etc/sudoers.d/sudoer"
fi
git clone --quiet --no-hardlinks "$tools/.." "$copy$home/harness"
if [ -n "$(git -C "$tools/.." status --porcelain)" ]; then
    echo 'note: the clone has what is committed, and there are changes that are not' >&2
fi

if [ "$who" != root ]; then
    chroot "$copy" chown -R "$who:" "$home/harness"
    set -- runuser -u "$who" -- "$@"
fi
if [ "$who" = user ]; then
    set -- sh -c 'for list in packages*.txt; do sh tools/install-packages.sh "$list"; done; exec "$@"' sh "$@"
fi
for name in $(awk 'BEGIN { for (name in ENVIRON) print name }'); do
    case $name in
    TERM | CI | PIP_* | SSL_CERT_* | REQUESTS_CA_BUNDLE | *_proxy | *_PROXY)
        set -- "$name=$(printenv "$name")" "$@"
        ;;
    esac
done
set -- env --ignore-environment --chdir="$home/harness" HOME="$home" LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
# In the background, so that a signal that comes meanwhile is heeded; but such a child would ignore Ctrl-C.
exec 7<&0
env --default-signal=INT,QUIT setpriv --pdeathsig KILL \
    sh "$tools/enter-root.sh" "$copy" "$@" <&7 7<&- 9<&- &
entered=$!
status=0
wait "$entered" || status=$?
entered=''
exit "$status"
