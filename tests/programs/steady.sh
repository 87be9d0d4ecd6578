#!/bin/sh
# steady.sh BIN FOLDER: makes and prints FOLDER, with BIN's programs, some of which are others. bench_probe finds the same machine
# every time: a real one takes a third of a second, and where it finds neighbours, runs are made again. (allreduce_section has real
# ones, and measured_rows reads one.) The deep network whose steps are timed has layers of 256 in place of 512: a quarter of the
# work, and still several buckets of 1 MB.
mkdir "$2" && ln -s "$1"/* "$2" && cd "$2"
rm bench_probe
printf '#!/bin/sh\necho threads=0 gflops=100 triad_gbps=50\n' >bench_probe
for program in train_single train_dp train_ddp train_fsdp bench_profile; do
    rm $program
    cat >$program <<END
#!/bin/sh
for word; do
    shift
    [ "\$word" != 512,512,512,512,512,512,512,512 ] || word=256,256,256,256,256,256,256,256
    set -- "\$@" "\$word"
done
exec "$1/$program" "\$@"
END
    chmod +x $program
done
chmod +x bench_probe
echo "$2"
