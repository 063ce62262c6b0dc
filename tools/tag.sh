#!/bin/sh
# tag.sh: tag the last commit as the release of the harness's version, with that version's section of the CHANGELOG.
#
# It refuses a tree with changes that are not committed, a version that is tagged already, files that disagree on the
# version, and a CHANGELOG without a section of it. It pushes nothing.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "$*" >&2
    exit 2
}

version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' harness/version.py)
[ -z "$(git status --porcelain)" ] || fail "expected a clean tree, found changes: commit them, or set them aside (git status)"
if git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null; then
    fail "expected a new version, but v$version is tagged: raise __version__ in harness/version.py"
fi
grep -qx "version: $version" CITATION.cff || fail "expected version $version in CITATION.cff, found $(grep ^version: CITATION.cff)"
head -n 1 debian/changelog | grep -qF "($version-" || fail "expected version $version in debian/changelog, found $(head -n 1 debian/changelog)"
section=$(awk -v heading="## $version" '/^## / { within = $0 == heading } within' CHANGELOG.md)
[ -n "$section" ] || fail "expected a section '## $version' in CHANGELOG.md, found none (an unreleased one says so in its heading)"

git tag --annotate --cleanup=verbatim --message="$section" "v$version"
echo "tagged v$version: git push origin v$version"
