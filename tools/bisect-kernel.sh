#!/bin/sh
# bisect-kernel.sh FOLDER MARGIN OPTION...: is the kernel checked out in this git tree slower than the good one?
#
# For `git bisect run`. OPTION... are those of `harness run`, which measures each kernel 5 times if none says otherwise.
# Results go to FOLDER. The first call there measures the good kernel, so check that one out before:
#
#     git checkout GOOD && sh bisect-kernel.sh ~/bisect 1% --virtual-time --link wired --ipsec both
#     git bisect start BAD GOOD && git bisect run sh bisect-kernel.sh ~/bisect 1% --virtual-time --link wired --ipsec both
#
# Exit status: 0 not slower; 1 slower by MARGIN or more; 125 no answer for this commit (it does not build, a cell
# fails on it, or no cell could be judged), which git bisect skips; 128 no answer for any (wrong usage, something missing, interrupted), so git stops.
set -u

if [ $# -lt 2 ]; then
  sed -n '2s/^# //p' "$0" >&2
  exit 128
fi
folder=$1
margin=$2
shift 2

# ended STATUS: what the harness could not do says something of this commit if its exit status is 1.
ended() {
  [ "$1" -eq 1 ] && exit 125
  exit 128
}

mkdir -p "$folder" && tree=$(git rev-parse --show-toplevel) && commit=$(git rev-parse --short=12 HEAD) || exit 128
if [ ! -d "$folder/good" ] && [ -e "$(git rev-parse --git-path BISECT_LOG)" ]; then
  echo "expected results of the good kernel in $folder/good, found none: check that commit out and measure it first" >&2
  exit 128
fi
harness kernel build --source "$tree" > "$folder/built.txt" || ended $?
cat "$folder/built.txt"
key=$(sed -n 's/^to use it: harness run --lab-kernel //p' "$folder/built.txt")

# What an interrupted call has measured must not be taken for the good kernel's results.
rm -rf "$folder/unfinished"
harness run --repeats 5 "$@" --lab-kernel "$key" --results "$folder/unfinished" || ended $?
if [ ! -d "$folder/good" ]; then
  mv "$folder/unfinished" "$folder/good"
  echo "commit $commit is the good one"
  exit 0
fi
rm -rf "${folder:?}/$commit"
mv "$folder/unfinished" "$folder/$commit"
harness compare "$folder/good" "$folder/$commit" --fail-if-slower "$margin"
status=$?
[ "$status" -ne 3 ] || exit 125
[ "$status" -le 1 ] || exit 128
exit "$status"
