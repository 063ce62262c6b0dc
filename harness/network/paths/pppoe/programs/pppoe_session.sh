#!/bin/sh
# pppoe-server(8) starts this instead of pppd(8), for a session that a client has been given.
#
# By default a program in user space would carry each packet: `pty "pppoe -n -I IFACE -e N:MAC ..." file ...`. The same
# pppd with its rp-pppoe plugin leaves that to the kernel, and takes the session from its arguments.
# PPPD is the program, MTU the session's MTU.
set -eu
iface=${2##*-I }
iface=${iface%% *}
session=${2##*-e }
session=${session%% *}
shift 2
exec "$PPPD" plugin rp-pppoe.so "nic-$iface" rp_pppoe_sess "$session" "$@" mtu "$MTU" mru "$MTU"
