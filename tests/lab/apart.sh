#!/bin/sh
# apart.sh FOLDER COMMAND...: run a command that has a /run, a /tmp and a /dev/shm of its own, in FOLDER.
#
# It is a second testbed of the same user: two labs can be at work at once, and neither finds the lock of the
# other, or takes its files for something that was left behind. The current folder stays where it is, also below
# /tmp: a clone of the project may lie there.
set -eu
place=$1
shift
rm -rf "$place"
mkdir -p "$place/run" "$place/tmp"
chmod 1777 "$place/tmp"
exec unshare --map-root-user --mount -- sh -c '
    place=$1
    shift
    here=$(pwd -P)
    case $here in
    /tmp/*)
        mkdir -p "$place$here"
        mount --bind "$here" "$place$here"
        ;;
    esac
    mount --bind "$place/run" /run
    mount --rbind "$place/tmp" /tmp
    cd "$here"
    mount -t tmpfs -o mode=1777 apart /dev/shm
    exec "$@"
' sh "$place" "$@"
