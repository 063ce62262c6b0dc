# Completion of `harness` for fish: keep it as ~/.config/fish/completions/harness.fish
function __harness_offered
    set -l typed (commandline -opc)
    set -g __harness_words (_HARNESS_COMPLETE=words $typed[1] $typed[2..] (commandline -ct) 2>/dev/null)
    test -n "$__harness_words"
end
# Where there is nothing to offer, file names are.
complete -c harness -n __harness_offered -f -a '$__harness_words'
