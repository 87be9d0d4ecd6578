# results.sh: the folder of results of bench's commands, $out: only one command at a time writes there, and a new call
# removes only files that such commands write. Sourced after setup.sh by all commands that have --out; uses out, resume,
# asked and command_name (options.sh).
# The first line of $out/manifest.txt names the command that owns the folder, the second the process that wrote last. A
# folder that is not empty and has no such manifest is refused. A command writes its runs/, plots/, traces, figures and
# the FILEs that it passes to open_results; other files, such as notes, stay.
# The lock is flock's on the folder itself, held through descriptor 9, and ends with the command in any case. Programs
# that the command starts must not inherit it, or one that is left behind would keep it: "COMMAND 9<&-".

manifest_title() {
    echo "# made by $command_name of ddp.c: a new call with this --out replaces its results"
}

refuse_results() { # WHY
    setup_say "error: --out $out: $1"
    exit 2
}

# claim_results: locks the folder for this process, or ends the command with status 2. Removes nothing. An empty folder
# that the command has created and left empty is removed at its end.
claim_results() {
    local status=0 was_there=1
    [[ ! -e $out || -d $out ]] || refuse_results "is no folder"
    [[ -d $out ]] || was_there=0
    mkdir -p -- "$out" 2>/dev/null || refuse_results "cannot be made"
    [[ -w $out && -x $out && -r $out ]] || refuse_results "cannot be written"
    exec 9<"$out"
    flock -E 75 -w 1 9 2>/dev/null || status=$? # waits a second: a killed command may be about to end
    [[ $status != 75 ]] || refuse_results "in use by $(holder_of_results); wait until it ends, or choose another folder"
    [[ $status == 0 ]] || setup_say "no lock on $out; a second command there would not be noticed"
    is_new || is_our_manifest || refuse_results "is not empty and has no manifest.txt of $command_name; nothing was touched"
    [[ ! -L $out/runs && ! -L $out/plots ]] || refuse_results "runs or plots in it is a link; nothing was touched"
    [[ $was_there == 1 ]] || trap leave_no_empty_folder EXIT
    printf '%s\n# written by process %s on %s: %.80s\n' "$(manifest_title)" $$ "$(uname -n)" "${asked//$'\n'/ }" >"$out/manifest.txt"
}

# is_new: true if the folder is empty, except for the files of a command that was killed while it wrote the manifest.
is_new() {
    local held
    held=$(ls -A -- "$out")
    [[ -z $held || ($held == manifest.txt && -f $out/manifest.txt && ! -s $out/manifest.txt) ]]
}

is_our_manifest() {
    [[ -f $out/manifest.txt && ! -L $out/manifest.txt && $(head -n 1 "$out/manifest.txt") == "$(manifest_title)" ]]
}

holder_of_results() {
    local line=
    ! is_our_manifest || line=$(sed -n '2s/^# written by //p' "$out/manifest.txt" | tr -d '[:cntrl:]')
    echo "${line:-another command}"
}

leave_no_empty_folder() {
    [[ $(ls -A -- "$out") != manifest.txt ]] || rm -r -- "$out"
}

# open_results FILE...: begins new results in the claimed folder. FILEs are the files that the command writes besides
# its runs/, plots/ and figures. An earlier call's files are removed; with --resume its runs and their traces stay.
open_results() {
    local file
    local -a old=(plots commands.txt disturbed.txt section.md section.html "$@")
    for file in bench/plots/*.gp; do
        file=$(basename "$file" .gp)
        old+=("$file.svg" "$file.png")
    done
    [[ $resume == 1 ]] || old+=(runs)
    (cd -- "$out" && rm -rf -- "${old[@]}" && { [[ $resume == 1 ]] || rm -f -- trace-*.json; })
    mkdir -p "$out/runs" "$out/plots" || exit 2
    : >"$out/commands.txt"
    trap '[[ $? != 130 ]] || say_interrupted' EXIT
}
