#!/bin/sh
# Reports what a machine has of what a run needs; `harness/testbeds/requirements.py` sends it and reads its output. Plain
# sh, because a machine may lack everything else. It changes nothing.
#   sh -s -- LOGIN PYTHON WORD...
#   LOGIN   the user who logged in; empty: the user who runs this
#   PYTHON  the distribution's own
#   WORD    what to look for: program:NAME, python:MODULE, package:NAME (Debian's), module:NAME (the kernel's),
#           udp:PORT (who listens there)
# After a mark it prints lines of a key and a value.
main() {
    export LC_ALL=C PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
    python=$2
    echo harness-facts
    echo "login ${1:-$(id -un)}"
    echo "uid $(id -u)"
    kernel=$(uname -r)
    echo "kernel $kernel"
    (
        [ -r /etc/os-release ] || exit 0
        . /etc/os-release
        echo "distribution $PRETTY_NAME"
        echo "family ${ID:-} ${ID_LIKE:-}"
        echo "release ${VERSION_ID:-} ${VERSION_CODENAME:-}"
    )
    "$python" -I -c 'import sys; print("python %d.%d" % sys.version_info[:2])' 2>/dev/null
    # The same way as the agent is started.
    said=$(unshare --mount --propagation private --pid --fork true 2>&1) ||
        echo "unshare $(printf '%s\n' "$said" | head -n 1)"
    if [ ! -d "/lib/modules/$kernel" ]; then
        others=$(ls /lib/modules 2>/dev/null) || :
        if [ -n "$others" ]; then echo 'modules other'; else echo 'modules absent'; fi
    fi

    shift 2
    for word; do
        case $word in
        udp:*) listeners "${word#udp:}" ;;
        *) has "${word%%:*}" "${word#*:}" >/dev/null 2>&1 || echo "absent $word" ;;
        esac
    done

    df -Pk /var/tmp 2>/dev/null | {
        read -r _
        read -r _ _ _ free _ && echo "free $free"
    }
    # Addresses of IPv6 for a link alone come and go with it: no run is told to use one.
    { ip -o -4 address show && ip -o -6 address show scope global; } 2>/dev/null | while read -r _ name _ address _; do
        wifi=''
        if [ -e "/sys/class/net/$name/phy80211" ]; then wifi=' (WiFi)'; fi
        [ "$name" = lo ] || echo "interface $name $address$wifi"
    done
    if [ -d /proc/sys/net/ipv6 ]; then
        for file in /proc/sys/net/ipv6/conf/*/disable_ipv6; do
            name=${file%/*}
            name=${name##*/}
            case $name in
            all | default | lo) ;;
            *) [ "$(cat "$file")" = 0 ] || echo "only-ipv4 $name" ;;
            esac
        done
    else
        echo 'no-ipv6 kernel'
    fi
    for file in /run/harness/*.lock; do
        # Not flock(1): a run that starts at this moment would find the lock taken.
        inode=$(stat -c %i "$file" 2>/dev/null) && grep -q ":$inode 0 EOF" /proc/locks || continue
        role=${file##*/}
        echo "busy ${role%.lock} $(head -n 1 "$file")"
    done
    for file in /run/harness/agent-*.jsonl /var/lib/harness/agent-*.jsonl; do
        [ -e "$file" ] || continue
        # One on the disk may be that of an agent in another container, whose locks /proc does not show.
        if command -v flock >/dev/null && ! flock --shared --nonblock "$file" true; then continue; fi
        echo "journal ${file##*/}"
    done
}

has() {
    case $1 in
    program)
        # dash takes any file with that path for a command.
        case $2 in /*) [ -x "$2" ] ;; *) command -v "$2" ;; esac
        ;;
    # A folder left by a removed package can be imported as well, but has no file.
    python) "$python" -I -B -c "import sys, $2; sys.exit(not $2.__file__)" ;;
    package) dpkg-query -W -f='${Status}' "$2" | grep -q 'install ok installed' ;;
    # Without modprobe nothing is known of modules.
    module) ! command -v modprobe || modprobe --dry-run --quiet "$2" ;;
    esac
}

# Who listens on a UDP port: process id, name. The id is - if it may not be seen.
listeners() {
    sockets=$(ss -H -u -l -n -p "sport = :$1" 2>/dev/null)
    [ -n "$sockets" ] || return
    pids=$(printf '%s\n' "$sockets" | grep -o 'pid=[0-9]*' | sort -u)
    for pid in ${pids:-pid=-}; do
        pid=${pid#pid=}
        echo "listener $pid $(cat "/proc/$pid/comm" 2>/dev/null)"
    done
}

# The shell reads to the end before anything runs: programs must not take the rest for their input.
main "$@" </dev/null
