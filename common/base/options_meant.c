/* options_meant.c: "did you mean?" for an unknown option or value: first by the names that torch,
 * torchrun and other trainers use for our options, then by edit distance.
 *
 * One list of names serves all programs: a row applies only if the program has the option `meant`.
 * A row without an option is advice, and applies only if no other row does.
 * "name=value" is a value that is not among the option's choices. A new name is added to the row
 * with the right remark, or as a row.
 */
#include <ctype.h>
#include <string.h>

#include "common/base/format.h"
#include "common/base/options.h"

enum { NAME_MAX_LENGTH = 48, NEAR_MIN_LENGTH = 4 };

// clang-format off
// Other programs' names for one of our options or values.
static const struct Synonym {
    // Their names "a|b|c", without the dashes in front; or one option's values "name=a|b|c".
    const char *given;
    const char *meant; // our option's name, or its value; NULL: none
    // A remark, or NULL. If `meant` is NULL: the advice. If it begins with "--": the option
    // with its value, as it is suggested.
    const char *why;
} synonyms[] = {
    // Data and model
    {"batch-size|batch|b|bs|train-batch-size",
     "global-batch", "the samples of all devices together"},
    {"global-batch-size", "global-batch", NULL},
    {"micro-batch-size|per-device-train-batch-size|per-gpu-train-batch-size",
     "global-batch", "it is divided among the devices"},
    {"arch|a|net|network|model-name|model-name-or-path", "model", NULL},
    {"dataset|dataset-name|data-dir|data-path|data-root|root|train-dir", "data", NULL},
    {"shuffle", NULL, "samples are shuffled unless --no-shuffle is given"},
    {"workers|num-workers|j",
     NULL, "one thread per process always prepares the next batch: leave it out"},
    {"pin-memory", NULL, "it is done wherever it helps: leave it out"},
    {"random-seed|manual-seed", "seed", NULL},
    // Optimisation
    {"gradient-accumulation-steps|accumulate-grad-batches|grad-accum-steps|grad-accum",
     "accumulate-steps", NULL},
    {"max-grad-norm|gradient-clip-val|clip-grad|grad-clip", "clip-grad-norm", NULL},
    {"learning-rate|base-lr|init-lr|max-lr", "lr", NULL},
    {"opt|optim", "optimizer", NULL},
    {"wd|l2", "weight-decay", NULL},
    {"beta1|adam-beta1|beta2|adam-beta2", "betas", "--betas F,F"},
    {"epsilon|adam-epsilon", "eps", NULL},
    {"lr-gamma", "gamma", NULL},
    {"lr-step-size|step-size", "step-every", NULL},
    {"start-factor|lr-warmup-decay", "warmup-start", NULL},
    {"num-epochs|n-epochs|max-epochs|total-epochs|num-train-epochs|e", "epochs", NULL},
    {"max-steps|num-steps|total-steps|train-steps|iterations|iters|max-iters|train-iters",
     "steps", NULL},
    {"scheduler|lr-scheduler|lr-scheduler-type|lr-schedule|lr-decay-style", "schedule", NULL},
    {"warmup|num-warmup-steps|warmup-iters|lr-warmup-iters", "warmup-steps", NULL},
    {"lr-warmup-epochs|warmup-epochs", "warmup-steps", "counted in steps"},
    {"fp16|half", "amp", "--amp fp16"},
    {"bf16", "amp", "--amp bf16"},
    {"dtype|amp-dtype|precision|mixed-precision|use-amp|autocast", "amp", NULL},
    {"allow-tf32", "tf32", NULL},
    {"device=gpu", "cuda", NULL},
    {"amp=float16|half", "fp16", NULL},
    {"amp=bfloat16", "bf16", NULL},
    {"amp=float32|no", "none", NULL},
    {"schedule=none", "constant", NULL},
    {"schedule=linear|poly", "polynomial", NULL},
    {"schedule=multistep", "step", NULL},
    // Files and records
    {"output|output-dir|out-dir|save-dir|work-dir|checkpoint-dir|logdir|log-dir", "out", NULL},
    {"eval|eval-only|test-only", "evaluate", "--evaluate FILE"},
    {"checkpoint|ckpt|ckpt-path|load|snapshot-path|resume-from|resume-from-checkpoint",
     "resume", NULL},
    {"weights", "load-init", NULL},
    {"pretrained", "load-init", "a file of weights"},
    {"save-freq|save-interval|save-steps|checkpoint-every", "save-every", "counted in steps"},
    {"print-freq|log-freq|log-interval|logging-steps", "log-every", NULL},
    {"profiler", "profile", NULL},
    // Devices and ranks
    {"gpu|cuda|use-cuda", "device", "--device cuda"},
    {"accelerator", "device", NULL},
    {"no-cuda|cpu", "device", "--device cpu"},
    {"gpu-ids", "device-ids", NULL},
    {"gpus|num-gpus|n-gpu|ngpus", "devices", NULL},
    {"gpus|num-gpus", NULL, "start one rank for each: ddprun --nproc-per-node N train_ddp"},
    {"devices",
     NULL, "train_dp takes --devices N; train_ddp has one rank for each: ddprun --nproc-per-node "
           "N train_ddp"},
    {"device-ids",
     NULL, "train_dp takes --device-ids; the ranks of train_ddp see what CUDA_VISIBLE_DEVICES "
           "leaves them"},
    {"dist-backend|distributed-backend", "backend", NULL},
    {"backend=gloo", "shm", "between the processes of one machine"},
    {"bucket-cap|bucket-size-mb|ddp-bucket-cap-mb", "bucket-cap-mb", NULL},
    {"no-overlap-grad-reduce", "no-overlap", NULL},
    {"ddp-timeout|timeout", "timeout-s", NULL},
    {"distributed-timeout-minutes", "timeout-s", "in seconds"},
    {"sync-bn|sync-batchnorm", "sync-batch-norm", NULL},
    {"ddp-find-unused-parameters", "find-unused-parameters", NULL},
    {"ddp-comm-hook", "comm-hook", NULL},
    {"world-size", NULL, "it follows from ddprun --nproc-per-node N (and --nnodes)"},
    {"rank", NULL, "ddprun tells each rank by RANK in its environment: leave it out"},
    {"local-rank", NULL, "ddprun tells each rank by LOCAL_RANK in its environment: leave it out"},
    {"distributed|multiprocessing-distributed",
     NULL, "start it so: ddprun --nproc-per-node N train_ddp"},
    {"dist-url|init-method", NULL, "ddprun says where ranks meet: --master-addr and --master-port"},
    // The launcher: torchrun, torch.distributed.launch, accelerate, mpirun, srun
    {"nproc|np|n|nprocs|num-procs|num-processes|nproc-per-machine|procs-per-node|ntasks|"
     "ntasks-per-node|num-gpus|gpus|workers", "nproc-per-node", NULL},
    {"world-size", "nproc-per-node", "the ranks on each node"},
    {"nproc|nproc-per-node",
     NULL, "that is an option of ddprun: ddprun --nproc-per-node N train_ddp"},
    {"nodes|num-nodes|machines|num-machines", "nnodes", NULL},
    {"machine-rank|node-id", "node-rank", NULL},
    {"main-process-ip|master|master-ip", "master-addr", NULL},
    {"main-process-port|port", "master-port", NULL},
    {"restarts", "max-restarts", NULL},
    {"r", "redirects", NULL},
    {"t", "tee", NULL},
    {"logs|output-dir", "log-dir", NULL},
    {"numa-binding|bind-to|cpu-bind", "bind", "--bind cores"},
    {"timeout", "start-timeout", NULL},
    {"kill-wait", "grace-seconds", NULL},
    {"rdzv-endpoint", "master-addr", "and --master-port: node 0 serves there"},
    {"rdzv-conf", "start-timeout", "the time that the nodes have to find each other"},
    {"rdzv-backend",
     NULL, "ranks meet in the store of node 0's ddprun, at --master-addr and --master-port: leave "
           "it out"},
    {"rdzv-id", NULL, "a job is known by its --master-port and its DDPRUN_TOKEN: leave it out"},
    {"use-env", NULL, "ranks always find LOCAL_RANK in their environment: leave it out"},
    {"module|m", NULL, "name the program by its path"},
    {"no-python|run-path", NULL, "any program is started as it is: leave it out"},
    {"role", NULL, "ranks have one role, \"default\": leave it out"},
    {"start-method", NULL, "a rank is always a new process: leave it out"},
    {"local-addr", NULL, "only node 0's address matters: --master-addr"},
};
// clang-format on

// ---- edit distance ------------------------------------------------------------------------------

static bool same_letter(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

// The number of letters to insert, remove, replace or swap with a neighbour that turns `given` into
// the word, ignoring case (Damerau 1964, Levenshtein 1966).
static size_t edit_distance(const char *given, OptionWord word) {
    size_t d[NAME_MAX_LENGTH + 1][NAME_MAX_LENGTH + 1];
    const size_t rows = strlen(given), columns = (size_t)word.length;
    if (rows > NAME_MAX_LENGTH || columns > NAME_MAX_LENGTH) return SIZE_MAX;
    for (size_t i = 0; i <= rows; i++) {
        for (size_t j = 0; j <= columns; j++) {
            const char *a = given + i - 1, *b = word.start + j - 1;
            size_t least = i + j; // at the margins: all inserted, or all removed
            if (i > 0 && j > 0) {
                least = d[i - 1][j - 1] + !same_letter(*a, *b);
                if (d[i - 1][j] + 1 < least) least = d[i - 1][j] + 1;
                if (d[i][j - 1] + 1 < least) least = d[i][j - 1] + 1;
            }
            bool swapped = i > 1 && j > 1 && same_letter(*a, b[-1]) && same_letter(a[-1], *b);
            if (swapped && d[i - 2][j - 2] + 1 < least) least = d[i - 2][j - 2] + 1;
            d[i][j] = least;
        }
    }
    return d[rows][columns];
}

OptionWord options_nearest(const char *given, const char *words, int shortest, size_t *best) {
    OptionWord nearest = {0};
    for (OptionWord word = {0}; options_next_word(words, &word);) {
        size_t distance = edit_distance(given, word), length = (size_t)word.length;
        if (word.length < shortest || distance >= *best) continue;
        if (distance > (length < 3 ? 1 : length / 3)) continue;
        *best = distance;
        nearest = word;
    }
    return nearest;
}

// ---- errors -------------------------------------------------------------------------------------

// Sets the error of a synonym: "PROBLEM; did you mean X?", or "PROBLEM: REMARK".
static int refuse_synonym(const struct Synonym *row, const char *dashes, const char *problem,
                          Error *err) {
    if (!row->meant) return error_set(err, STATUS_USAGE, "%s: %s", problem, row->why);
    bool spelled = row->why && strncmp(row->why, "--", 2) == 0;
    if (spelled) return error_set(err, STATUS_USAGE, "%s; did you mean %s?", problem, row->why);
    return error_set(err, STATUS_USAGE, "%s; did you mean %s%s%s%s%s?", problem, dashes, row->meant,
                     row->why ? " (" : "", row->why ? row->why : "", row->why ? ")" : "");
}

int options_refuse_name(const Options *options, const char *argument, Error *err) {
    char given[NAME_MAX_LENGTH] = "", name[256], problem[256];
    size_t length = 0, best = SIZE_MAX;
    for (const char *c = argument + strspn(argument, "-"); *c && *c != '='; c++)
        if (length + 1 < sizeof given) given[length++] = *c == '_' ? '-' : *c;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(argument, "="), argument);
    snprintf(problem, sizeof problem, "unknown option %s", format_quote(name).text);
    const char *near = NULL;
    const struct Synonym *same = NULL, *similar = NULL;
    for (size_t i = 0; i < options->count; i++) {
        const Option *o = &options->table[i];
        if (o->type != OPTION_TITLE && options_nearest(given, o->name, 0, &best).start)
            near = o->name;
    }
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++) {
        const struct Synonym *row = &synonyms[i];
        const bool ours = row->meant && options_find(options, row->meant);
        if (row->meant && !ours) continue;
        if (options_has_word(row->given, given) && (!same || (ours && !same->meant))) same = row;
        if (ours && options_nearest(given, row->given, NEAR_MIN_LENGTH, &best).start) similar = row;
    }
    if (same || similar) return refuse_synonym(same ? same : similar, "--", problem, err);
    if (near) return error_set(err, STATUS_USAGE, "%s; did you mean --%s?", problem, near);
    return error_set(err, STATUS_USAGE, "%s (--help lists them%s)", problem,
                     options->takes_command ? "; the program's own follow its name" : "");
}

int options_refuse_choice(const Option *option, const char *text, Error *err) {
    char list[512] = "", problem[1000];
    size_t best = SIZE_MAX, length = strlen(option->name);
    for (OptionWord word = {0}; options_next_word(option->metavar, &word);)
        format_append(list, sizeof list, "%s%.*s", *list ? ", " : "", word.length, word.start);
    snprintf(problem, sizeof problem, "--%s: '%s' is none of %s", option->name,
             format_quote(text).text, list);
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++) {
        const struct Synonym *row = &synonyms[i];
        if (strncmp(row->given, option->name, length) == 0 && row->given[length] == '=' &&
            options_has_word(row->given + length + 1, text) &&
            (!row->meant || options_has_word(option->metavar, row->meant)))
            return refuse_synonym(row, "", problem, err);
    }
    const OptionWord near = options_nearest(text, option->metavar, 0, &best);
    if (!near.start) return error_set(err, STATUS_USAGE, "%s", problem);
    return error_set(err, STATUS_USAGE, "%s; did you mean %.*s?", problem, near.length, near.start);
}
