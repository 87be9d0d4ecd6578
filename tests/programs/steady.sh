#!/bin/sh
# steady.sh BIN FOLDER: makes and prints FOLDER, with links to BIN's programs, some of them replaced. bench_probe always
# reports the same rates: a real probe takes a third of a second, and other load would repeat runs. (allreduce_section
# runs the real bench_probe, and measured_rows reads its output.) The deep network whose steps are timed has layers of
# 256 instead of 512: a quarter of the work, and still several buckets of 1 MB. gpt-small has 2 blocks of
# 64 channels: a third of the work, and still a block to gather ahead.
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
    [ "\$word" != gpt-small ] || set -- "\$@" --layers 2 --embedding 64
done
exec "$1/$program" "\$@"
END
    chmod +x $program
done
chmod +x bench_probe
echo "$2"
