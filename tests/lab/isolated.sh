#!/bin/sh
# isolated.sh FOLDER COMMAND...: run a command that has a /run, a /tmp, a /var/tmp and a /dev/shm of its own, in FOLDER,
# and journals that outlive a reboot of its own.
#
# It is a second testbed of the same user: two labs can be at work at once, and neither finds the lock of the
# other, takes its files for something that was left behind, or crosses out what it cannot see. The current folder
# stays where it is, also below /tmp or /var/tmp: a clone of the project may lie there.
set -eu
place=$1
shift
# Who names a clone for FOLDER would lose it.
if [ -e "$place" ] && [ ! -d "$place/lib/changed" ] && [ -n "$(ls -A "$place")" ]; then
    echo "isolated.sh: expected a new folder, or one that isolated.sh made; found $place with files of others in it" >&2
    exit 2
fi
rm -rf "$place"
mkdir -p "$place/run" "$place/tmp" "$place/var/tmp" "$place/lib/changed" "$place/lib/work"
chmod 1777 "$place/tmp" "$place/var/tmp"
exec unshare --map-root-user --mount -- sh -c '
    set -eu
    place=$1
    shift
    here=$(pwd -P)
    case $here in
    /tmp/* | /var/tmp/*)
        mkdir -p "$place$here"
        mount --bind "$here" "$place$here"
        ;;
    esac
    mount --bind "$place/run" /run
    # Those journals of a user without root lie in /var/tmp. A mount on their folder itself would go with the folder,
    # which whoever is not apart removes when it is empty.
    [ ! -w /var/lib ] || mount -t overlay \
        -o "userxattr,lowerdir=/var/lib,upperdir=$place/lib/changed,workdir=$place/lib/work" apart /var/lib
    # Last that in which FOLDER itself may lie.
    case $place in /var/tmp/*) both="/tmp /var/tmp" ;; *) both="/var/tmp /tmp" ;; esac
    for folder in $both; do mount --rbind "$place$folder" "$folder"; done
    cd "$here"
    mount -t tmpfs -o mode=1777 apart /dev/shm
    exec "$@"
' sh "$place" "$@"
