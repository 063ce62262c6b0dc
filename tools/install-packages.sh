#!/bin/sh
# Installs the missing packages of a list (first word of each line). Usage: install-packages.sh LIST
# Of A|B one suffices: it installs the first that this release of Debian has.
set -eu

if ! command -v dpkg-query >/dev/null; then
    echo 'This is not Debian: install by hand what `harness doctor` names as missing.' >&2
    exit 0
fi

is_installed() {
    [ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null || true)" = 'install ok installed' ]
}

missing=''
for choice in $(sed 's/#.*//' "$1" | awk '{ print $1 }'); do
    found=''
    for package in $(echo "$choice" | tr '|' ' '); do
        if is_installed "$package"; then found=yes; fi
    done
    [ -n "$found" ] || missing="$missing $choice"
done
[ -n "$missing" ] || exit 0

echo "Installing system packages:$missing"
sudo=''
if [ "$(id -u)" -ne 0 ]; then
    echo 'sudo is used for these packages, and for nothing else.'
    sudo=sudo
fi
$sudo apt-get update -qq >/dev/null
chosen=''
for choice in $missing; do
    # Not left to apt-get, which takes the dot of linux-source-6.1 for any character and finds linux-source-6.12.
    for package in $(echo "$choice" | tr '|' ' '); do
        [ -z "$(apt-cache madison "$package")" ] || break
    done
    chosen="$chosen $package"
done
# The word splitting of the list is meant.
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $chosen >/dev/null
