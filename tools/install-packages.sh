#!/bin/sh
# Installs those packages of a list (first word of each line) that are missing. Usage: install-packages.sh LIST
set -eu

if ! command -v dpkg-query >/dev/null; then
    echo 'This is no Debian: install by hand what `harness doctor` will name as missing.' >&2
    exit 0
fi

missing=''
for package in $(sed 's/#.*//' "$1" | awk '{ print $1 }'); do
    status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$status" = 'install ok installed' ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "Installing system packages:$missing"
sudo=''
if [ "$(id -u)" -ne 0 ]; then
    echo 'sudo is used for these packages, and for nothing else.'
    sudo=sudo
fi
# The word splitting of the list is meant.
# shellcheck disable=SC2086
{
    $sudo apt-get update -qq
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
} >/dev/null
