#!/bin/sh
# run_label.sh: tests/run.sh reports a label without tests at once, before a build; a label with tests is built. CMake
# and CTest are simulated by two scripts that record their arguments.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
mkdir tests bench path
cp "$root/tests/run.sh" tests
cp "$root/bench/setup.sh" bench
cat >path/cmake <<'END'
#!/bin/sh
[ "$1" != --version ] || { echo "cmake version 3.25.1" && exit; }
echo "$@" >>asked.txt
END
cat >path/ctest <<'END'
#!/bin/sh
case "$*" in
*--print-labels*) printf 'All Labels:\n  lint\n  unit\n' ;;
*'^unit$'*-N*) echo "Total Tests: 7" ;;
*-N*) echo "Total Tests: 0" ;;
esac
END
chmod +x path/cmake path/ctest
PATH=$work/path:$PATH

refuse 2 "no test of this build has the label nope; there are lint unit" tests/run.sh --label nope
if grep -e --build asked.txt; then fail "a build before the label was checked"; fi
run "a label that there is" tests/run.sh --label unit
grep -q -e --build asked.txt || fail "no build: $(cat asked.txt)"
tally run_label
