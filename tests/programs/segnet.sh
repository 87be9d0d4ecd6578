#!/bin/sh
# segnet.sh BIN_DIR: dense prediction in the three training programs.
#
# DataParallel and DistributedDataParallel have equal bits if the loss is a mean over all ranks' pixels; metrics do not
# depend on the division of test images; a resumed run continues bit for bit; training learns; hard-example mining and
# pictures work; and invalid combinations are refused.
. "$(dirname "$0")/checks.sh"

single() { "$bin/train_single" --model segnet --data shapes:16x16@90 "$@"; }
dp() { n=$1; shift; "$bin/train_dp" --devices "$n" --model segnet --data shapes:16x16@90 "$@"; }
ddp() {
    n=$1
    shift
    "$bin/ddprun" --nproc-per-node "$n" "$bin/train_ddp" --model segnet --data shapes:16x16@90 "$@"
}

# ---- equivalence -------------------------------------------------------------------------------------------
# 90 images in batches of 20; the last batch has 10. On 3 devices the shares are 7, 7, 6.
few="--global-batch 20 --steps 9 --no-eval"
for world in 2 3; do
    run "dp $world" dp "$world" $few --save "dp$world"
    run "ddp $world" ddp "$world" $few --save "ddp$world" --sampler blocked --normalize global
    same "dp$world" "ddp$world"
done
run "single" single $few --save whole
! "$bin/compare_tensors" --bitwise whole dp2 >cmp.txt 2>&1 || fail "batch norms of halves see the whole"

# ---- metrics -----------------------------------------------------------------------------------------------
# A run resumed at its last step only evaluates: 18 test images on 1, 2 and 4 devices.
metrics() { grep -o 'test_accuracy=.*' out.txt; }
run "evaluation" single --global-batch 20 --steps 9 --resume whole
wanted=$(metrics)
echo "$wanted" | grep -q 'test_miou=0\.[0-9]' || fail "no mean IoU in: $(cat out.txt)"
run "evaluation, dp" dp 2 --global-batch 20 --steps 9 --resume whole
[ "$(metrics)" = "$wanted" ] || fail "one device finds $wanted, dp $(metrics)"
run "evaluation, ddp" ddp 4 --global-batch 20 --steps 9 --resume whole
[ "$(metrics)" = "$wanted" ] || fail "one device finds $wanted, ddp $(metrics)"

# ---- resuming ----------------------------------------------------------------------------------------------
plan="--global-batch 20 --steps 8 --no-eval --augment --schedule constant --log-every 1"
run "eight steps" single $plan --save eight --save-every 3 --out eight-rows
run "three steps" single $plan --steps 3 --save three
run "five more" single $plan --resume three --save three
same eight three
[ "$(cut -d, -f1 eight-rows/steps.csv | tr '\n' ' ')" = "step 0 1 2 3 4 5 6 7 " ] ||
    fail "rows of steps.csv are missing: $(cat eight-rows/steps.csv)"

# ---- hard examples -----------------------------------------------------------------------------------------
mining="--ohem-threshold 0.5 --ohem-min 100"
run "mining" single $few $mining --save hard
! "$bin/compare_tensors" --bitwise whole hard >cmp.txt 2>&1 || fail "--ohem-threshold changes nothing"
run "mining, dp" dp 3 $few $mining
run "mining, ddp" ddp 2 $few $mining
run "mining, ddp over all pixels" ddp 2 $few $mining --sampler blocked --normalize global
# All losses are below the threshold: the 100 hardest pixels of each batch are used, for any such threshold.
run "100 pixels" single $few --ohem-threshold 50 --ohem-min 100 --save hardest
run "100 pixels" single $few --ohem-threshold 60 --ohem-min 100 --save hardest60
same hardest hardest60

# The same threshold, given as a probability of the true class: 0.5 = exp(-0.69...).
run "a loss of log 2" single $few --ohem-threshold 0.69314718055994529 --ohem-min 100 --save hard-loss
run "a probability of 1/2" single $few --ohem-probability 0.5 --ohem-min 100 --save hard-half
same hard-loss hard-half

# ---- users' pictures ---------------------------------------------------------------------------------------
# 8x8 pixels, in rows of one class each; the last row is white and ignored.
picture() { # FOLDER NAME ROWS: a picture, dark for class a, bright for class c, and its labels
    mkdir -p "$1"
    { printf 'P6\n8 8\n255\n' && printf %s "$3" | sed 's/./&&&&&&&&&&&&&&&&&&&&&&&&/g' | tr abcw '\040\140\240\300'; } >"$1/$2.ppm"
    { printf 'P5\n8 8\n255\n' && printf %s "$3" | sed 's/./&&&&&&&&/g' | tr abcw '\000\001\002\377'; } >"$1/$2.pgm"
}
for n in 0 1 2 3 4 5; do
    picture own/train "$n-x" aabbbccw && picture own/train "$n-y" cccabbaw && picture own/train "$n-z" bcabcabw
done
picture own/test 0 cbaabcaw
own="--model segnet --data own --ignore-label 255 --global-batch 6"
run "own pictures" "$bin/train_single" $own --epochs 6 --out own-run --dump-images 6
[ "$(ls own-run/images)" = epoch_0005_sample_00.ppm ] || fail "pictures of one picture: $(ls own-run/images)"
[ "$(sed -n 's/.*"test_accuracy": \([0-9.]*\).*/\1/p' own-run/summary.json | cut -c1-3)" != 0.0 ] ||
    fail "nothing is learnt from pictures: $(cat own-run/summary.json)"
run "own pictures, dp" "$bin/train_dp" --devices 2 $own --epochs 2 --no-eval --save own-dp
run "own pictures, ddp" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" $own --epochs 2 --no-eval --save own-ddp \
    --sampler blocked --normalize global
same own-dp own-ddp
# Where every pixel has a class, all count: also those of class 0.
picture all/train 0 aabbccab && picture all/test 0 abcabcab
all="--model segnet --data all --global-batch 1 --steps 2"
run "every pixel" "$bin/train_single" $all --save all-count
run "every pixel, said" "$bin/train_single" $all --ignore-label -1 --save all-said
same all-count all-said
refuse 2 'own/train: labels up to 2, and then 255' "$bin/train_single" --model segnet --data own
refuse 2 '--ignore-label has no effect' "$bin/train_single" --model segnet --ignore-label 255
refuse 2 'pixels has labels of pixels' "$bin/train_single" --data own --ignore-label 255

# ---- learning, and dumped pictures -------------------------------------------------------------------------
run "learning" "$bin/train_single" --model segnet --data shapes:16x16@800 --global-batch 8 --epochs 4 \
    --lr 0.05 --schedule polynomial --warmup-steps 10 --weight-decay 0 --out learnt --dump-images 2
miou=$(grep -o 'test_miou=[0-9.]*' out.txt | tail -n 1 | cut -d= -f2)
awk "BEGIN { exit !($miou > 0.3) }" || fail "mean IoU $miou after four epochs (background alone gives 0.2)"
grep -q '"test_miou"' learnt/summary.json || fail "summary.json lacks test_miou"
[ -s learnt/best.safetensors ] || fail "there is no best checkpoint"
checks=$((checks + 1))
pictures=$(cd learnt/images && echo *)
wanted=$(for epoch in 1 3; do seq -f "epoch_000${epoch}_sample_%02.0f.ppm" 0 7; done)
[ "$pictures" = "$(echo $wanted)" ] || fail "the pictures are $pictures"
for picture in learnt/images/*; do
    [ "$(head -n 2 "$picture" | tail -n 1)" = "48 16" ] || fail "$picture is not of 48 x 16 pixels"
done

# ---- invalid combinations ----------------------------------------------------------------------------------
program=$bin/train_single
refuse 2 'segnet predicts pixels, but digits has labels of samples' "$program" --model segnet --data digits
refuse 2 'mlp predicts samples, but shapes has labels of pixels' "$program" --model mlp --data shapes:8x8@8
refuse 2 'sides that 4 divides, got 9x12' "$program" --model segnet --data shapes:9x12@8
refuse 2 'shapes:9: want' "$program" --model segnet --data shapes:9
refuse 2 '--ohem-threshold' "$program" --model segnet --ohem-threshold -1
tiny='--model segnet --data shapes:8x8@8 --global-batch 2'
refuse 2 '--dump-images has no effect: it needs --out' "$program" $tiny --dump-images 1
refuse 2 '--dump-images has no effect: with --no-eval' "$program" $tiny --dump-images 1 --out nothing --no-eval
refuse 2 '--dump-images has no effect: --data has no labels' "$program" --model mlp --dump-images 1 --out nothing
refuse 2 '--ohem-threshold has no effect: --data has no labels' "$program" --model mlp --ohem-threshold 0.5
refuse 2 '--ohem-probability has no effect: --data has no labels' "$program" --model mlp --ohem-probability 0.5
refuse 2 '--ohem-probability has no effect: --ohem-threshold' "$program" $tiny --ohem-probability 0.5 --ohem-threshold 1
refuse 2 '--loss has no effect: pixels have one class each' "$program" $tiny --loss bce
refuse 2 '--ohem-min has no effect: --data has no labels' "$program" --model mlp --ohem-min 5
refuse 2 '--ohem-min has no effect: without --ohem-threshold' "$program" $tiny --ohem-min 5
[ ! -e nothing ] || fail "a refused run left a folder"

tally segnet
