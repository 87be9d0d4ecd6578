# common.sh: what the scripts start, hint and grade share. Sourced after `here`, this folder, is set.
root=$(cd "$here/.." && pwd -P)
build=${TUTORIAL_BUILD:-$root/build}        # where the project was built
work=${TUTORIAL_WORK:-$root/tutorials/work} # where the exercises are written; git ignores it
shown=${TUTORIAL_SHOWN:-$work}               # how that folder is called in what is printed
[ "$shown" != "$root/tutorials/work" ] || shown=tutorials/work
program=${0##*/}

die() {
    echo "$program: $*" >&2
    exit 2
}

# step_of NN: the folder of a step, "02-shards", from its number (2, 02) or its name.
step_of() {
    number=${1%%[-/]*}
    case $number in [0-9]) number=0$number ;; esac
    for folder in "$here/$number"-*/; do
        [ -d "$folder" ] || die "there is no step $1; tutorials/README.md lists them"
        folder=${folder%/}
        echo "${folder##*/}"
    done
}

# exercises_of STEP [EE]: the names of a step's exercises, one a line: "01-weighted-mean". EE is a number: 3, or 03.
exercises_of() {
    number=${2:-}
    case $number in [0-9]) number=0$number ;; esac
    for file in "$here/$1/exercises/$number"*.grade.c; do
        [ -e "$file" ] || die "step $1 has no exercise ${2:-}"
        file=${file##*/}
        echo "${file%.grade.c}"
    done
}

# assemble SOLUTION REGION: the solution's file with another region between its two marks.
assemble() {
    REGION=$2 awk '
        /^\/\/ SOLUTION END/ { inside = 0; next }
        /^\/\/ SOLUTION BEGIN/ {
            inside = 1
            while ((getline line < ENVIRON["REGION"]) > 0) print line
        }
        !inside' "$1"
}
