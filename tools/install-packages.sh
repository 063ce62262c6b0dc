#!/bin/sh
# Installs the missing packages of a list. Usage: install-packages.sh LIST [OS-RELEASE]
# The first word of each line is a package, by Debian's name; releases/*.toml has the names of other distributions,
# which os-release(5) tells apart. Of A|B one suffices, and the first that this release has is installed.
# What follows the last two blanks is what for.
# What cannot be installed is named on standard error, and all the rest is installed. The status is 0 even so: the
# harness skips what it lacks, and `harness doctor` names it.
set -eu
export LC_ALL=C.UTF-8

list=$1
os_release=${2:-/etc/os-release}
releases=$(cd "$(dirname "$0")/.." && pwd)/releases

# A field of os-release.
field() {
    [ ! -r "$os_release" ] || (
        # shellcheck disable=SC1090
        . "$os_release"
        eval "echo \"\${$1:-}\""
    )
}

# The file of the first of these ids, and its data: VALUE KEY of a line `KEY = "VALUE"`, and the names as `Debian's=here`.
file=''
for id in $(field ID) $(field ID_LIKE); do
    file=$(grep -lE "^ids = \[.*\"$id\"" "$releases"/*.toml 2>/dev/null | head -n 1) || true
    [ -z "$file" ] || break
done
value() { sed -n "s/^$1 = \"\(.*\)\"\$/\1/p" "$file" | head -n 1; }
if [ -n "$file" ]; then
    manager=$(value install)
    manager=${manager%% *}
    title="This release of $(value title)"
    same=$(value names_as)
elif command -v apt-get >/dev/null; then
    manager=apt-get title='This release' same=debian
else
    manager='' title='' same=''
fi
case $manager in
apt-get | dnf | pacman) ;;
*)
    echo 'Packages are installed here by apt-get, dnf or pacman alone: install by hand what `harness doctor` names as missing.' >&2
    exit 0
    ;;
esac

# What a package, or the first of a choice (A|B), is called here; nothing if there is none.
names() {
    if [ -n "$file" ] && awk -v name="$1" '
        /^\[/ { section = $0 }
        section == "[names]" {
            key = $0; sub(/ = .*/, "", key); gsub(/"/, "", key)
            if (key == name) { found = 1; text = $0; sub(/^.* = "/, "", text); sub(/"$/, "", text); print text; exit }
        }
        END { exit !found }' "$file"; then
        return
    fi
    [ -z "$same" ] || echo "$1" | tr '|' '\n'
}

is_installed() {
    case $manager in
    apt-get) [ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null || true)" = 'install ok installed' ] ;;
    dnf) rpm --query "$1" >/dev/null 2>&1 ;;
    pacman) pacman -Qq "$1" >/dev/null 2>&1 ;;
    esac
}

# Whether the release has a package.
is_known() {
    case $manager in
    # Not left to apt-get, which takes the dot of linux-source-6.1 for any character and finds linux-source-6.12.
    apt-get) [ -n "$(apt-cache madison "$1")" ] ;;
    dnf) dnf --quiet list "$1" >/dev/null 2>&1 ;;
    pacman) pacman -Si "$1" >/dev/null 2>&1 ;;
    esac
}

# What a command of the package manager says on standard error, and its status. It waits for as long as another program
# holds a lock: `apt-get update` does not, whatever DPkg::Lock::Timeout says, and neither does pacman.
unlocked() {
    waits=''
    while :; do
        status=0
        output=$({ $sudo "$@" >/dev/null; } 2>&1) || status=$?
        [ "$status" -ne 0 ] || break
        held=$(printf '%s\n' "$output" | grep -iE 'could not (get )?lock|unable to lock' | head -n 1) || true
        [ -n "$held" ] || break
        [ -n "$waits" ] || echo "Waiting for another program that installs packages: $held" >&2
        waits=yes
        sleep "${LOCK_POLL_S:-2}"
    done
    [ -z "$output" ] || printf '%s\n' "$output"
    return "$status"
}

refresh() {
    case $manager in
    apt-get) unlocked apt-get update -qq >&2 || echo 'apt-get update failed: what it knew before is used.' >&2 ;;
    # dnf does so itself. With newer lists pacman would install what the rest of the system does not fit to.
    pacman) [ -n "$(pacman -Slq 2>/dev/null | head -n 1)" ] || unlocked pacman -Sy --noconfirm >&2 ;;
    esac
}

install() {
    case $manager in
    apt-get) set -- env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" ;;
    dnf) set -- dnf install -y --quiet --setopt=install_weak_deps=False "$@" ;;
    pacman) set -- pacman -S --needed --noconfirm "$@" ;;
    esac
    unlocked "$@"
}

# A choice (A|B) with what it is for, as in "A or B (the kernel: its source)".
described() {
    awk -F '  +' -v choice="$1" '
        { split($1, words, " ") }
        words[1] == choice { gsub(/\|/, " or ", choice); print choice " (" $NF ")"; exit }' "$list"
}

# Whether of a choice's names here, one is installed; on distributions with names of their own, all that stand for it.
is_there() {
    here=$(names "$1")
    [ -n "$here" ] || return 1
    case $1 in
    *'|'*) for name in $here; do if is_installed "$name"; then return 0; fi; done; return 1 ;;
    *) for name in $here; do is_installed "$name" || return 1; done ;;
    esac
}

missing=''
unknown=''
for choice in $(sed 's/#.*//' "$list" | awk '{ print $1 }'); do
    if [ -z "$(names "$choice")" ]; then
        unknown="$unknown${unknown:+, }$(described "$choice")"
    elif ! is_there "$choice"; then
        missing="$missing $choice"
    fi
done

tell_unknown() {
    [ -z "$unknown" ] ||
        echo "$title has no package for these, and what works without them goes on: $unknown." >&2
}
if [ -z "$missing" ]; then
    tell_unknown
    exit 0
fi

echo "Installing system packages:$missing"
sudo=''
if [ "$(id -u)" -ne 0 ]; then
    echo 'sudo is used for these packages, and for nothing else.'
    sudo=sudo
    if ! $sudo true; then
        echo "Nothing was installed, because sudo refused; somebody who may has to install:$missing" >&2
        exit 0
    fi
fi
refresh
chosen=''
for choice in $missing; do
    known=''
    for name in $(names "$choice"); do
        if is_known "$name"; then
            known="$known $name"
            # Of a choice, the first is enough.
            case $choice in *'|'*) break ;; esac
        fi
    done
    if [ -n "$known" ]; then
        chosen="$chosen$known"
    else
        unknown="$unknown${unknown:+, }$(described "$choice")"
    fi
done

# The word splitting of the list is meant.
# shellcheck disable=SC2086
if [ -n "$chosen" ] && ! said=$(install $chosen); then
    # One that cannot be installed must not keep the others out.
    for name in $chosen; do
        if ! said=$(install "$name"); then
            for choice in $missing; do
                case " $(names "$choice" | tr '\n' ' ') " in *" $name "*) break ;; esac
            done
            reason=$(printf '%s\n' "$said" | grep -iE '^(E:|error)' | head -n 1)
            echo "Not installed: $(described "$choice"): ${reason:-$manager told no reason}" >&2
        fi
    done
fi
tell_unknown
