/* train_options.c: the rows of --help that the three programs share. */
#include <limits.h>
#include <string.h>

#include "common/base/format.h"
#include "common/base/hash.h"
#include "common/nn/models.h"
#include "common/train/train_config.h"

TrainConfig train_config_default(void) {
    return (TrainConfig){
        .model = "mlp",
        .hidden = "256,128",
        .ignore_label = -1,
        .device = "auto",
        .epochs = 10,
        .global_batch = 60,
        .optimizer = OPTIMIZER_SGD,
        .momentum = 0.9,
        .weight_decay = 0.01,
        .betas = {0.9, 0.999},
        .eps = 1e-8,
        .amp = PRECISION_F32,
        .threads = 1,
        .schedule = {.kind = SCHEDULE_COSINE, .lr = 0.08, .gamma = 0.1, .power = 0.9},
        .pos_weight = 1,
        .seed = 0,
        .sampler_seed = -1,
        .accumulate_steps = 1,
        .log_every = 25};
}

static void model_options(Options *o, TrainConfig *c) {
    options_add_title(o, "Model and data");
    options_add_choice(o, "model", &c->model, model_names(), "the network");
    options_add_string(o, "hidden", &c->hidden, "N,N", "mlp: sizes of the hidden layers");
    options_add_count(o, "layers", &c->gpt.layers, 0, GPT_MAX_LAYERS,
                      "gpt: blocks (0: the model's)");
    options_add_count(o, "heads", &c->gpt.heads, 0, GPT_MAX_HEADS, "gpt: heads of attention");
    options_add_count(o, "embedding", &c->gpt.embedding, 0, GPT_MAX_SIZE, "gpt: channels");
    options_add_count(o, "context", &c->gpt.context, 0, GPT_MAX_SIZE,
                      "gpt: context length in tokens");
    options_add_count(o, "vocabulary", &c->vocabulary, 0, GPT_MAX_SIZE,
                      "gpt: number of its tokens (0: that of --data; GPT-2: 50257)");
    options_add_string(
        o, "data", &c->data, "NAME|FILE|DIR",
        "digits (default), synthetic[:3x32x32:10[@COUNT]], shapes[:32x32[@COUNT]] (pixels with "
        "labels, for segnet), text (plays by Shakespeare, for gpt), a FILE.txt, or a folder: "
        "MNIST-style IDX files, CIFAR-10 binary batches, train/ and test/ with images and labels "
        "of their pixels (NAME.ppm, NAME.pgm), or tokens (train.bin, val.bin)");
    options_add_int(o, "ignore-label", &c->ignore_label, -1, 255,
                    "segnet: pixels of this gray value in a NAME.pgm do not count (-1: all do)");
    options_add_flag(o, "summary", &c->summary, "only print the model, its shapes and parameters");
    options_add_flag(o, "dry-run", &c->dry_run, "only print the run's memory by kind, in bytes");
    options_add_flag(o, "augment", &c->augment, "random crop (padding 4) and horizontal flip");
    options_add_flag(o, "no-shuffle", &c->no_shuffle, "take the samples in their order");
    options_add_flag(o, "drop-last", &c->drop_last, "drop the epoch's last batch if incomplete");
    options_add_int(o, "sampler-seed", &c->sampler_seed, -1, INT_MAX,
                    "of the samples' order alone (-1: --seed)");
    options_add_count(o, "global-batch", &c->global_batch, 1, 1 << 24, "samples per step in total");
    options_add_count(o, "accumulate-steps", &c->accumulate_steps, 1, 1 << 16,
                      "work on a step's batch in K parts, for less memory");
    options_metavar(o, "K");
}

static void device_options(Options *o, TrainConfig *c) {
    options_add_choice(o, "device", &c->device, "auto|cpu|cuda|ref",
                       "auto: GPUs if there are any; ref: the plain-C reference kernels");
    options_add_string(o, "link", &c->link, "GBIT,LATENCY_US|NAME",
                       "cpu, several devices: transfers take at least as long as over this "
                       "network, emulated by sleeping; 10gbe, pcie3x16, nvlink, paper-rdma");
    options_add_float(o, "memory-limit", &c->memory_limit_mib, 0, 1e9,
                      "end with an error where a device needs more than F MiB (0: no limit)");
    options_add_count(o, "threads", &c->threads, 1, 1024,
                      "cpu, one device per process: threads for its matrix products; as many "
                      "give the same bits, more or fewer may round otherwise");
    options_add_enum(o, "amp", &c->amp, "none|bf16|fp16",
                     "mixed precision: linear and convolution in 16 bits, all else in 32");
    options_add_flag(o, "tf32", &c->tf32, "cuda: products of float32 may round to 10 bits");
    options_add_flag(o, "cuda-graph", &c->cuda_graph,
                     "cuda: capture a step once and replay it (one GPU per process)");
    options_add_count(o, "seed", &c->seed, 0, 0, "of initial weights, order and augmentation");
}

static void training_options(Options *o, TrainConfig *c) {
    options_add_title(o, "Optimisation");
    options_add_count(o, "epochs", &c->epochs, 1, 1e9, "passes over the data");
    options_add_count(o, "steps", &c->steps, 0, 1e12, "end after N steps, not epochs (0: epochs)");
    options_add_enum(o, "optimizer", &c->optimizer, OPTIMIZER_WORDS, "how gradients become steps");
    options_add_float(o, "lr", &c->schedule.lr, 0, 1e6, "learning rate");
    options_add_float(o, "momentum", &c->momentum, 0, 1, "sgd: the last step's factor");
    options_add_flag(o, "nesterov", &c->nesterov, "sgd: Nesterov's momentum");
    options_add_float(o, "weight-decay", &c->weight_decay, 0, 1e6,
                      "as in PyTorch's optimizer of that name; of all parameters, of a gpt with "
                      "adamw of matrices only, as in nanoGPT");
    options_add_pair(o, "betas", c->betas, 0, 0.999999, "adam, adamw: decay of both moments");
    options_add_float(o, "eps", &c->eps, 0, 1, "adam, adamw: added to the denominator");
    options_add_float(o, "clip-grad-norm", &c->clip_grad_norm, 0, 1e30,
                      "make the reduced gradients, all together, no longer than F (0: leave them)");
    options_add_enum(o, "schedule", &c->schedule.kind, SCHEDULE_WORDS, "of the learning rate");
    options_add_count(o, "warmup-steps", &c->schedule.warmup_steps, 0, 1e12,
                      "linear warm-up before the schedule");
    options_add_float(o, "warmup-start", &c->schedule.warmup_start, 0, 1,
                      "the first step's part of --lr, which the step after the warm-up reaches (0: "
                      "1/N, and --lr is reached in its last step)");
    options_add_count(o, "step-every", &c->schedule.step_every, 0, 1e12,
                      "schedule step: times --gamma every N steps (0: a third of the run)");
    options_add_float(o, "gamma", &c->schedule.gamma, 0, 1e6, "schedule step: the rate's factor");
    options_add_float(o, "power", &c->schedule.power, 0, 1e6, "schedule polynomial: the exponent");
    options_add_enum(o, "loss", &c->loss, "auto|bce",
                     "auto: cross-entropy of classes, squared error of numbers; bce: binary "
                     "cross-entropy, a yes or no for each class");
    options_add_float(o, "pos-weight", &c->pos_weight, 0, 1e6, "bce: weight of positive labels");
    options_add_float(o, "ohem-threshold", &c->ohem_threshold, 0, 1e6,
                      "segnet: learn only from pixels whose loss is above F (0: all)");
    options_add_float(o, "ohem-probability", &c->ohem_probability, 0, 1,
                      "segnet: only where the true class has a probability below F (0: all)");
    options_add_count(o, "ohem-min", &c->ohem_min, 0, 1e12,
                      "segnet: at least the N hardest of a rank's batch (0: a sixteenth)");
}

static void file_options(Options *o, TrainConfig *c) {
    options_add_title(o, "Records and files");
    options_add_count(o, "log-every", &c->log_every, 1, 1e12,
                      "steps between lines on stdout and rows in steps.csv");
    options_add_string(
        o, "out", &c->out, "DIR",
        "write config.json, steps.csv, summary.json, best, last and previous checkpoint");
    options_add_string(o, "save", &c->save, "FILE", "the last checkpoint (safetensors)");
    options_add_count(o, "save-every", &c->save_every, 0, 1e12,
                      "also save every N steps, not only after epochs");
    options_add_count(o, "keep-epochs", &c->keep_epochs, 0, 1e9,
                      "keep a checkpoint of every K epochs, DIR/model_00010.safetensors");
    options_metavar(o, "K");
    options_add_string(
        o, "resume", &c->resume, "FILE|DIR|auto",
        "continue from a checkpoint, bit for bit; DIR: the newest whole one in it; auto: what "
        "--save or --out of this command wrote, if anything yet (for ddprun --max-restarts)");
    options_add_string(o, "save-init", &c->save_init, "FILE", "the initial weights");
    options_add_string(
        o, "load-init", &c->load_init, "FILE",
        "initial weights; for a gpt also GPT-2's, as Hugging Face's transformers saves it");
    options_add_string(o, "strip-prefix", &c->strip_prefix, "PREFIX",
                       "--load-init, --evaluate: remove PREFIX from names in the file (module. of "
                       "a wrapped model, _orig_mod. of a compiled one)");
    options_add_string(o, "dump-grads", &c->dump_grads, "FILE",
                       "write --dump-step's reduced gradients; {step} in the name is the step");
    options_add_string(o, "dump-step", &c->dump_step, "K[,K]", "which steps, from 0");
    options_add_count(o, "dump-images", &c->dump_images, 0, 1e9,
                      "segnet: every K epochs, test images, truth and prediction to DIR/images");
    options_metavar(o, "K");
    options_add_string(o, "evaluate", &c->evaluate, "FILE",
                       "do not train: evaluate weights or a checkpoint");
    options_add_count(o, "sample", &c->sample, 0, 1 << 24,
                      "gpt: at the end, write N generated tokens, drawn by --seed");
    options_add_flag(o, "no-eval", &c->no_eval, "do not evaluate on the test split");
    options_add_flag(o, "profile", &c->profile, "end with a table of the time of a step's phases");
    options_add_string(o, "trace", &c->trace, "FILE",
                       "write a timeline of all ranks for ui.perfetto.dev");
}

// In the order of --help. Rows without a title belong to the previous title.
void train_options(Options *options, TrainConfig *config) {
    if (!config->dump_step) config->dump_step = "0";
    model_options(options, config);
    device_options(options, config);
    training_options(options, config);
    file_options(options, config);
}

OptimizerConfig train_optimizer(const TrainConfig *config) {
    return (OptimizerConfig){.kind = config->optimizer,
                             .momentum = config->momentum,
                             .nesterov = config->nesterov,
                             .weight_decay = config->weight_decay,
                             .decay_matrices_only = model_is_text(config->model),
                             .beta1 = config->betas[0],
                             .beta2 = config->betas[1],
                             .eps = config->eps};
}

uint64_t train_sampler_seed(const TrainConfig *config) {
    return config->sampler_seed < 0 ? config->seed : (uint64_t)config->sampler_seed;
}

const char *train_amp_name(Precision precision) {
    static const char *const NAMES[] = {"none", "bf16", "fp16"};
    return NAMES[precision];
}

// ---- the options that must be equal on all ranks, as text ---------------------------------------

void train_options_alike(const Options *options, char *text, size_t capacity) {
    // Files that only rank 0 reads or writes: names may differ by node.
    static const char OF_ONE_RANK[] = "out|save|trace|dump-grads|save-init|load-init";
    enum { VALUE_MAX = 80 }; // a longer value is truncated and ends with its hash
    bool fits = true;
    text[0] = '\0';
    for (size_t i = 0; i < options->count; i++) {
        const Option *option = &options->table[i];
        if (option->type == OPTION_TITLE || options_has_word(OF_ONE_RANK, option->name)) continue;
        char buffer[VALUE_MAX], *line = text + strlen(text);
        const char *value = option_text(option, buffer, sizeof buffer);
        if (!value) value = "not given";
        const size_t length = strlen(value), room = capacity - (size_t)(line - text);
        format_append(line, room, "--%s %.*s", option->name,
                      length < VALUE_MAX ? VALUE_MAX : VALUE_MAX - 13, length > 0 ? value : "''");
        if (length >= VALUE_MAX)
            format_append(line, room, "...#%08x", (unsigned)hash_bytes(HASH_START, value, length));
        for (char *at = line; *at; at++)
            if ((unsigned char)*at < ' ') *at = '?'; // each option is one line
        fits = format_append(line, room, "\n") && fits;
    }
    CHECK(fits, "the options' text needs more than %zu bytes", capacity);
}
