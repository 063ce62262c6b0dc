#!/bin/sh
# The first process of the lab's kernel (init). Its one argument is a folder of the machine that holds
# `settings`, written by harness/testbeds/lab/boot/__init__.py:
#   MODULES   the kernel's modules on the machine
#   RESULTS   the one folder that may be written, or empty
#   STATE     the folder itself
#   NAME      the kernel's host name
#   COMMAND   what to run, as one shell line
#   PEERS     kernels that must answer over ssh before that, or empty
#   EARLY     the folder of libraries for fio (early.c, stubs.py), or empty
# The folder may hold `network`, a batch for ip(8), and with it `ssh`, which becomes root's ~/.ssh; and `exchange`, a
# folder for messages, which the lab may write to.
# The root file system is the machine's own, read-only through hostfs. An overlay with a tmpfs on top makes
# every path writable in the lab and none on the machine.
set -eu
# The console is a terminal, which would put a carriage return before each newline.
stty -opost 2>/dev/null || true
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
. "$1/settings"

mount -n -t proc proc /proc
mount -n -t sysfs sys /sys
# /mnt, because it exists everywhere and nothing needed is there. Always -n: mount(8) has nowhere to note its
# options while /run is the machine's.
mount -n -t tmpfs -o size=90% tmpfs /mnt
mkdir -p /mnt/modules/lib /mnt/upper /mnt/work /mnt/root
ln -s "$MODULES" /mnt/modules/lib/modules
modprobe -d /mnt/modules overlay
mount -n -t overlay overlay /mnt/root -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work

root=/mnt/root
mount -n --move /proc $root/proc
mount -n --move /sys $root/sys
mount -n --bind /dev $root/dev
# Each program takes its time here, so the shell does what it can by itself.
if ! [ -d $root/dev/shm ] || ! [ -d $root/lib/modules ]; then mkdir -p $root/dev/shm $root/lib/modules; fi
mount -n -t tmpfs tmpfs $root/dev/shm
mount -n -t tmpfs -o mode=755 tmpfs $root/run
# LIO keeps persistent reservations in the first of etc/target and var/target that exists, and refuses them without
# `pr`.
reservations=$root/var/target/pr
if [ -d $root/etc/target ]; then reservations="$reservations $root/etc/target/pr"; fi
# shellcheck disable=SC2086 # two folders
mkdir -p $root/run/results $root/run/lock $root/run/home $reservations
if [ -n "$RESULTS" ]; then
    # Through a symbolic link without blanks or commas, which mount options cannot contain. By mount(2): libmount 2.39
    # and later would use fsconfig(2), where hostfs since Linux 6.11 takes no folder without a keyword, and
    # earlier ones know no keyword.
    LIBMOUNT_FORCE_MOUNT2=always mount -n -t hostfs none $root/run/results -o "$STATE/results"
fi
if [ -d "$STATE/exchange" ]; then
    # Not through the overlay, which need not see what is new below it.
    mkdir $root/run/exchange
    LIBMOUNT_FORCE_MOUNT2=always mount -n -t hostfs none $root/run/exchange -o "$STATE/exchange"
fi
mount -n --bind "$MODULES" $root/lib/modules
echo "$NAME" > $root/proc/sys/kernel/hostname

if [ -e "$STATE/network" ]; then
    ip -batch "$STATE/network"
    echo 1 > $root/proc/sys/net/ipv4/ip_forward
    # Interfaces on one trunk must not answer for each other.
    echo 1 > $root/proc/sys/net/ipv4/conf/all/arp_ignore
    # sshd(8) lets nobody in whose password is locked by a `!`, runs the shell that the user has, and that
    # runs what is in his home; ssh(1) looks for its files there.
    sed -i 's|^root:.*|root:x:0:0:root:/run/home:/bin/sh|' $root/etc/passwd
    rm -f $root/etc/shadow
    echo 'root:*:::::::' > $root/etc/shadow
    # In the lab of a user without root, the machine's files for ssh(1) are nobody's, and it refuses those that
    # another includes (20-systemd-ssh-proxy.conf of Debian 13).
    rm -rf $root/etc/ssh/ssh_config.d
    mkdir $root/run/sshd
    if [ -e "$STATE/ssh" ]; then ln -s "$STATE/ssh" $root/run/home/.ssh; fi
fi

export HOME=/run/home PYTHONDONTWRITEBYTECODE=1 HARNESS_EARLY="$EARLY" COMMAND PEERS
exec chroot $root /bin/sh -c '
cd /
for peer in $PEERS; do
    # The process that booted this kernel has a deadline.
    until ssh -o ConnectTimeout=2 "$peer" true; do sleep 0.1; done
done
[ -z "$PEERS" ] || printf "\nharness-lab-begins\n"
status=0
eval "$COMMAND" || status=$?
printf "\nharness-lab-exit %s\n" "$status"
halt -f 2>/dev/null || echo o > /proc/sysrq-trigger
'
