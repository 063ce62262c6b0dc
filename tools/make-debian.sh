#!/bin/sh
# make-debian.sh FOLDER: make the Debian source package of what is committed in a new FOLDER.
#
# strongSwan's Python client (vici), which Debian does not have, is a second tarball of it, from the registry that pip
# uses. Building takes no network: cd FOLDER/storage-network-harness && dpkg-buildpackage -us -uc
set -eu
if [ $# -ne 1 ] || [ -e "$1" ]; then
    echo "usage: $0 FOLDER, which must not exist yet" >&2
    exit 2
fi
vici=6.0.3
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
name=storage-network-harness
version=$(sed -n '1s/.*(\(.*\)-[^-]*).*/\1/p' debian/changelog)

git archive --prefix="$name/" HEAD | tar -C "$folder" -xf -
mv "$folder/$name/debian" "$folder/debian"
tar -C "$folder" -czf "$folder/${name}_$version.orig.tar.gz" "$name"
mv "$folder/debian" "$folder/$name/debian"
python3 -m pip download --quiet --no-deps --no-binary :all: --dest "$folder" "vici==$vici"
mv "$folder/vici-$vici.tar.gz" "$folder/${name}_$version.orig-vici.tar.gz"
mkdir "$folder/$name/vici"
tar -C "$folder/$name/vici" --strip-components 1 -xzf "$folder/${name}_$version.orig-vici.tar.gz"
