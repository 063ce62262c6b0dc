#!/bin/sh
# enter-root.sh FOLDER COMMAND...: run a command as root with FOLDER as its root file system.
#
# It runs in namespaces of its own, which end with it: mounts, processes and the host name, but not the
# network. It uses pivot_root(2), because in a chroot the kernel refuses user namespaces
# (user_namespaces(7)), which the lab needs.
set -eu
if [ "$1" != --inside ]; then
    exec unshare --mount --uts --ipc --pid --fork --kill-child -- sh "$0" --inside "$@"
fi
folder=$2
shift 2

mount --bind "$folder" "$folder"
cd "$folder"
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
# Whose owner is whoever opens it: interfaces of a network namespace of one's own (tun(4)).
if [ -e /dev/net/tun ]; then
    mkdir dev/net
    : >dev/net/tun
    mount --bind /dev/net/tun dev/net/tun
fi
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
mkdir dev/pts dev/shm run/lock
chmod 1777 run/lock
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs dev/shm
hostname "$(basename "$folder")"

pivot_root . mnt
cd /
umount --lazy /mnt
# Not by exec: the first process of a namespace ignores the signals that it does not catch.
status=0
"$@" || status=$?
exit "$status"
