#!/bin/sh
# steady.sh BIN FOLDER: makes and prints FOLDER, with BIN's programs and a bench_probe that finds the same machine every time: a
# real one takes a third of a second, and where it finds neighbours, runs are made again. (allreduce_section has real ones, and measured_rows
# reads one.)
mkdir "$2" && ln -s "$1"/* "$2" && rm "$2/bench_probe"
printf '#!/bin/sh\necho threads=0 gflops=100 triad_gbps=50\n' >"$2/bench_probe"
chmod +x "$2/bench_probe"
echo "$2"
