# shellcheck shell=bash
# Completion of `harness` for bash: source it, or keep it as ~/.local/share/bash-completion/completions/harness
_harness() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${line%%$'\t'*}")
    done < <(_HARNESS_COMPLETE=words "$1" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
# Where there is nothing to offer, file names are.
complete -o default -F _harness harness
