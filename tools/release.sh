#!/bin/sh
# release.sh [FOLDER]: make what is released of the last commit in a new FOLDER (default: dist), and try each as installed.
#
# Source and wheel need what `make check` installs. The Debian package is built and tried in two fresh copies of a
# Debian 13 (try-on.sh), which takes root and mmdebstrap. The container image takes podman or buildah, and a registry
# with its base. What cannot be made here is named at the end; what was made and does not work is an error.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)
python=$tools/../.venv/bin/python
mkdir "${1:-dist}" 2>/dev/null || {
    echo "expected no folder ${1:-dist} yet: remove it, or name another one" >&2
    exit 2
}
folder=$(cd "${1:-dist}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
began=$(date +%s)
missing=''

tried() { echo "$1: $(date -d "@$(($(date +%s) - began))" -u +%M:%S): $2"; }

# What is committed, and nothing else.
git clone --quiet --no-hardlinks "$tools/.." "$work/clone"
clone=$work/clone
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$clone/harness/version.py")
SOURCE_DATE_EPOCH=$(git -C "$clone" log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# The wheel is made of the source distribution, which therefore lacks nothing.
(cd "$clone" && "$python" -m hatchling build --target sdist --directory "$folder" >/dev/null)
sdist=$(echo "$folder"/*.tar.gz)
mkdir "$work/sdist"
tar -C "$work/sdist" --strip-components 1 -xzf "$sdist"
(cd "$work/sdist" && "$python" -m hatchling build --target wheel --directory "$folder" >/dev/null)
for file in "$sdist" "$folder"/*.whl; do
    "$python" -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check "$file"
    tried "$(basename "$file")" "$(sh "$clone/tools/check-installed.sh" "$work/venv/bin/harness")"
    rm -rf "$work/venv"
done

if [ "$(id -u)" -eq 0 ] && command -v mmdebstrap >/dev/null; then
    sh "$clone/tools/make-debian.sh" "$work/package" 2>"$work/log"
    # Its standard output is for the packages.
    tar -C "$work/package" -cf - . | "$clone/tools/try-on.sh" trixie sh -c '
        exec 3>&1 >&2
        set -e
        mkdir /tmp/package
        tar -C /tmp/package -xf -
        cd /tmp/package/storage-network-harness
        export DEBIAN_FRONTEND=noninteractive
        apt-get --quiet=2 update
        apt-get --quiet=2 build-dep .
        dpkg-buildpackage --build=binary -us -uc
        cd ..
        tar -cf - *.deb >&3' 2>"$work/log" >"$work/packages" || { cat "$work/log" >&2; exit 1; }
    tar -C "$folder" -xf "$work/packages"
    said=$("$clone/tools/try-on.sh" trixie sh -c '
        set -e
        tar -C /tmp -xf -
        export DEBIAN_FRONTEND=noninteractive
        { apt-get --quiet=2 update && apt-get --quiet=2 install /tmp/*.deb; } >&2
        sh tools/check-installed.sh harness ready' 2>"$work/log" <"$work/packages") || { cat "$work/log" >&2; exit 1; }
    tried "$(basename "$folder"/storage-network-harness_*.deb)" "$said"
else
    missing="$missing; no Debian package, which takes root and mmdebstrap"
fi

image=harness:$version
if command -v podman >/dev/null; then
    podman build --quiet --tag "$image" "$clone" >/dev/null
    said=$(podman run --rm --network none --volume "$clone:/src:ro" --entrypoint sh "$image" /src/tools/check-installed.sh harness)
    podman save --quiet --format oci-archive --output "$folder/harness-$version.oci.tar" "$image"
    tried "harness-$version.oci.tar" "$said"
elif command -v buildah >/dev/null; then
    buildah build --quiet --tag "$image" "$clone" >/dev/null
    container=$(buildah from "$image")
    said=$(buildah run --volume "$clone:/src:ro" "$container" sh /src/tools/check-installed.sh harness)
    buildah rm "$container" >/dev/null
    buildah push --quiet "$image" "oci-archive:$folder/harness-$version.oci.tar"
    tried "harness-$version.oci.tar" "$said"
else
    missing="$missing; no container image, which takes podman or buildah"
fi

(cd "$folder" && sha256sum -- * >SHA256SUMS)
tried "$folder" "$(wc -l <"$folder/SHA256SUMS") files, with their SHA256SUMS${missing}"
