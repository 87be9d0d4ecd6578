# results.sh: the folder of results of bench's commands, $out: one command at a time writes there, and only what such a
# command has made is ever removed. Sourced after setup.sh by all commands that take --out; uses out, resume, asked
# and command_name (options.sh).
#
# $out/manifest.txt names the files that the command has made, a path per line, from $out. Its first line says whose
# they are, the second which process wrote last. A new call removes the files that it names and no others: notes
# that are kept beside the results stay. A folder that holds anything and has no such manifest is refused.
#
# The lock is flock's on the folder itself, held through descriptor 9. It ends with the command, however that ends. What
# the command starts must not inherit it, or a program that is left behind would hold it: "COMMAND 9<&-".

claimed=0 # 1: this process has the folder
not_ours= # the files, a line each, that were in it and that no manifest names

manifest_title() {
    echo "# made by $command_name of ddp.c: a new call with this --out removes the files named below, and no others"
}

refuse_results() { # WHY
    setup_say "error: --out $out: $1"
    exit 2
}

# claim_results: takes the folder for this process, or ends the command with status 2. Removes nothing. An empty folder
# that the command has made, and left empty, goes when it ends.
claim_results() {
    local status=0 was_there=1
    [[ ! -e $out || -d $out ]] || refuse_results "is no folder"
    [[ -d $out ]] || was_there=0
    mkdir -p -- "$out" 2>/dev/null || refuse_results "cannot be made"
    [[ -w $out && -x $out && -r $out ]] || refuse_results "cannot be written"
    exec 9<"$out"
    flock -E 75 -w 1 9 2>/dev/null || status=$? # a killed command may be about to end
    [[ $status != 75 ]] || refuse_results "in use by $(holder_of_results); wait until it ends, or choose another folder"
    [[ $status == 0 ]] || setup_say "no lock on $out; a second command there would not be noticed"
    remove_unfinished
    if [[ -n $(ls -A -- "$out") ]] && ! is_our_manifest; then
        refuse_results "is not empty and has no manifest.txt of $command_name; nothing was touched"
    fi
    [[ ! -L $out/runs && ! -L $out/plots ]] || refuse_results "runs or plots in it is a link; nothing was touched"
    claimed=1
    [[ $was_there == 1 ]] || trap leave_no_empty_folder EXIT
    write_manifest <<<"$(listed)"
}

is_our_manifest() {
    [[ -f $out/manifest.txt && ! -L $out/manifest.txt && $(head -n 1 "$out/manifest.txt") == "$(manifest_title)" ]]
}

# A command that was ended while it wrote a manifest leaves an unfinished one: removes it.
remove_unfinished() {
    local file
    for file in "$out"/.manifest.??????; do
        [[ -f $file && ! -L $file ]] || continue
        [[ -s $file && $(head -n 1 -- "$file") != "$(manifest_title)" ]] || rm -f -- "$file"
    done
}

holder_of_results() {
    local line=
    ! is_our_manifest || line=$(sed -n '2s/^# written by //p' "$out/manifest.txt" | tr -d '[:cntrl:]')
    echo "${line:-another command}"
}

leave_no_empty_folder() {
    remove_unfinished
    [[ -n $(listed) ]] || rm -f -- "$out/manifest.txt"
    rmdir -- "$out" 2>/dev/null || true
}

# write_manifest: a new manifest, of the paths that are read, a line each.
write_manifest() {
    local new
    new=$(mktemp "$out/.manifest.XXXXXX")
    {
        manifest_title
        printf '# written by process %s on %s: %.80s\n' $$ "$(uname -n)" "${asked//$'\n'/ }"
        sed '/^#/d; /^$/d' | sort -u
    } >"$new"
    mv -f -- "$new" "$out/manifest.txt"
}

# listed [BEGIN]: the files that the manifest names, that are there, and whose paths begin so. Paths that lead out of the
# folder, by "..", from the root or through a link, count for nothing.
listed() {
    local path folder
    [[ -f $out/manifest.txt ]] || return 0
    begin=${1:-} awk '!/^#/ && index($0, ENVIRON["begin"]) == 1' "$out/manifest.txt" | sort -u | while IFS= read -r path; do
        [[ /$path/ != *//* && /$path/ != */./* && /$path/ != */../* ]] || continue
        folder=$path
        while [[ $folder == */* ]]; do
            folder=${folder%/*}
            [[ ! -L $out/$folder ]] || continue 2
        done
        [[ ! -f $out/$path && ! -L $out/$path ]] || printf '%s\n' "$path"
    done
}

# made FILE...: the command makes these files in $out.
made() {
    [[ $claimed == 0 || $# == 0 ]] || printf '%s\n' "$@" >>"$out/manifest.txt"
}

# made_in FOLDER [PATTERN]: the files in that folder of $out that were not there when the results were opened are the
# command's.
made_in() {
    local -a paths
    [[ -d $out/$1 && ! -L $out/$1 ]] || return 0
    mapfile -t paths < <(cd -- "$out" && find "$1" ! -type d -name "${2:-*}" ! -path $'*\n*' | sed 's,^[.]/,,' |
        grep -vxF -f <(echo "$not_ours"))
    made "${paths[@]}"
}

# remove_made [BEGIN]: removes the files that the manifest names and whose paths begin so, and the folders that are empty
# then.
remove_made() {
    local -a paths folders
    mapfile -t paths < <(listed "${1:-}")
    [[ ${#paths[@]} -gt 0 ]] || return 0
    printf '%s\0' "${paths[@]}" | (cd -- "$out" && xargs -0 rm -f --)
    mapfile -t folders < <(printf '%s\n' "${paths[@]}" | sed -n 's,/[^/]*$,,p' | sort -ur)
    [[ ${#folders[@]} == 0 ]] || (cd -- "$out" && rmdir -p -- "${folders[@]}" 2>/dev/null) || true
}

# open_results FILE...: begins new results in the folder that was claimed. FILEs are those that the command writes beside
# its runs/, plots/ and figures. What an earlier call has made goes, but with --resume its runs and their traces stay.
open_results() {
    local file
    local -a files=(commands.txt disturbed.txt section.md section.html "$@")
    [[ $claimed == 1 ]] || claim_results
    for file in bench/plots/*.gp; do
        file=$(basename "$file" .gp)
        files+=("$file.svg" "$file.png")
    done
    for file in "${files[@]}"; do
        [[ ! -e $out/$file && ! -L $out/$file ]] || [[ -n $(listed "$file") ]] ||
            refuse_results "$file there is not from $command_name; nothing was touched"
    done
    if [[ $resume == 1 ]]; then
        for file in "${files[@]}" plots/; do remove_made "$file"; done
    else
        remove_made
    fi
    not_ours=$(find "$out" -mindepth 1 ! -type d -printf '%P\n' | grep -vxF -f <(listed; echo manifest.txt)) || true
    { listed; printf '%s\n' "${files[@]}"; } | write_manifest
    mkdir -p "$out/runs" "$out/plots" || exit 2
    : >"$out/commands.txt"
    trap close_results EXIT
}

# close_results: the manifest names what is there.
close_results() {
    [[ $? != 130 ]] || say_interrupted
    remove_unfinished
    made_in plots || true
    write_manifest <<<"$(listed)" || true
}
