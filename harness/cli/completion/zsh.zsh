#compdef harness
# Completion of `harness` for zsh: keep it as _harness in a folder of $fpath, or source it after compinit.
_harness() {
    local line
    local -a offered
    for line in ${(f)"$(_HARNESS_COMPLETE=words ${words[1]} "${(@)words[2,CURRENT]}" 2>/dev/null)"}; do
        offered+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    # Where there is nothing to offer, file names are.
    if (( $#offered )); then _describe harness offered; else _files; fi
}
if [[ $funcstack[1] = _harness ]]; then _harness "$@"; else compdef _harness harness; fi
