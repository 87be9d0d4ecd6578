/* synthetic.c: the teacher, its samples, and the parser of "synthetic:IN->OUT@COUNT".
 *
 * Every value is rng's function of (seed, stream, index), so all ranks generate the same set, and a
 * larger COUNT extends a smaller one.
 */
#include "common/data/synthetic.h"

#include <math.h>
#include <string.h>

#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/base/rng.h"

enum { SYNTHETIC_COUNT = 4096 };
// Spreads the logits so that labels are neither certain nor pure chance: of 10 classes the mean
// entropy is about 0.95 nats, ln 10 = 2.3 being chance.
static const double TEACHER_LOGIT_SCALE = 3.0;
static const size_t SYNTHETIC_MAX_FLOATS = (size_t)2 << 30; // 8 GiB
// Number of the first test sample, for any size of the training set.
static const size_t SYNTHETIC_TEST_FIRST = (size_t)1 << 32;

// A matrix of independent normals of variance scale^2 / inputs: it maps unit normals to outputs of
// standard deviation `scale`.
static float *teacher_matrix(uint64_t seed, uint64_t first, size_t outputs, size_t inputs,
                             double scale) {
    float *matrix = memory_zalloc(outputs * inputs * sizeof *matrix);
    float factor = (float)(scale / sqrt((double)inputs));
    for (size_t i = 0; i < outputs * inputs; i++)
        matrix[i] = factor * rng_normal(seed, RNG_STREAM_TEACHER, first + i);
    return matrix;
}

Teacher teacher_create(uint64_t seed, size_t inputs, size_t hidden, size_t outputs) {
    Teacher teacher = {.inputs = inputs, .hidden = hidden, .outputs = outputs};
    if (hidden == 0) {
        teacher.first = teacher_matrix(seed, 0, outputs, inputs, TEACHER_LOGIT_SCALE);
    } else {
        teacher.first = teacher_matrix(seed, 0, hidden, inputs, 1);
        teacher.second = teacher_matrix(seed, hidden * inputs, outputs, hidden, 1);
    }
    return teacher;
}

void teacher_close(Teacher *teacher) {
    free(teacher->first);
    free(teacher->second);
}

static double dot(const float *a, const float *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

void teacher_apply(const Teacher *teacher, const float *x, double *out) {
    if (teacher->hidden == 0) {
        for (size_t o = 0; o < teacher->outputs; o++)
            out[o] = dot(teacher->first + o * teacher->inputs, x, teacher->inputs);
        return;
    }
    for (size_t o = 0; o < teacher->outputs; o++) out[o] = 0;
    for (size_t h = 0; h < teacher->hidden; h++) {
        double active = fmax(0, dot(teacher->first + h * teacher->inputs, x, teacher->inputs));
        for (size_t o = 0; o < teacher->outputs; o++)
            out[o] += active * (double)teacher->second[o * teacher->hidden + h];
    }
}

// Draws a label from softmax(logits): the class whose logit plus Gumbel noise is the largest has
// this distribution. Writes the distribution's entropy, in nats.
static int64_t draw_label(const double *logits, size_t classes, uint64_t seed, size_t sample,
                          double *entropy) {
    double top = logits[0], sum = 0, mean = 0, best = -INFINITY;
    int64_t label = 0;
    for (size_t k = 1; k < classes; k++) top = fmax(top, logits[k]);
    for (size_t k = 0; k < classes; k++) {
        double weight = exp(logits[k] - top);
        sum += weight;
        mean += weight * (logits[k] - top);
        double u = (double)rng_uniform(seed, RNG_STREAM_NOISE, sample * classes + k, 0, 1);
        double score = logits[k] - log(-log(u));
        if (score > best) {
            best = score;
            label = (int64_t)k;
        }
    }
    // cppcheck-suppress invalidFunctionArg; sum > 0, as there is a class
    *entropy = log(sum) - mean / sum;
    return label;
}

// Generates the samples from index `first` on. Returns the sum of the labels' entropies (0 for a
// regression).
static double make_samples(Dataset *set, const DataSpec *spec, const Teacher *teacher,
                           uint64_t seed, size_t first, size_t count) {
    const size_t inputs = teacher->inputs;
    *set = (Dataset){.count = count, .shape = {spec->side[0], spec->side[1], spec->side[2]}};
    set->floats = memory_zalloc(count * inputs * sizeof *set->floats);
    if (spec->sides == 3) {
        set->classes = spec->outputs;
        set->labels = memory_zalloc(count * sizeof *set->labels);
    } else {
        set->target_size = spec->outputs;
        set->targets = memory_zalloc(count * spec->outputs * sizeof *set->targets);
    }
    double entropies = 0, entropy;
    double *out = memory_zalloc(spec->outputs * sizeof *out);
    for (size_t i = 0; i < count; i++) {
        float *x = set->floats + i * inputs;
        for (size_t j = 0; j < inputs; j++)
            x[j] = rng_normal(seed, RNG_STREAM_SYNTHETIC, (first + i) * inputs + j);
        teacher_apply(teacher, x, out);
        if (set->labels) {
            set->labels[i] = draw_label(out, spec->outputs, seed, first + i, &entropy);
            entropies += entropy;
        }
        for (size_t o = 0; set->targets && o < spec->outputs; o++) {
            uint64_t index = (first + i) * spec->outputs + o;
            double noise = TEACHER_NOISE * (double)rng_normal(seed, RNG_STREAM_NOISE, index);
            set->targets[i * spec->outputs + o] = (float)(out[o] + noise);
        }
    }
    free(out);
    return entropies;
}

// Multiplies *total by factor. Returns false, and changes nothing, if that exceeds the limit.
static bool grow_within_limit(size_t *total, size_t factor) {
    if (factor > SYNTHETIC_MAX_FLOATS / *total) return false;
    *total *= factor;
    return true;
}

int synthetic_parse(const char *name, DataSpec *spec, size_t *inputs, Error *err) {
    if (!spec_parse(name, "3x32x32:10", SYNTHETIC_COUNT, spec) || spec->sides == 2 ||
        spec->outputs == 0)
        return error_set(err, STATUS_USAGE,
                         "%s: want synthetic:SIZE->TARGETS (regression) or "
                         "synthetic:CxHxW->CLASSES, with @COUNT behind it if you like",
                         format_quote(name).text);
    bool fits = true;
    *inputs = 1;
    for (size_t d = 0; d < 3; d++) fits = fits && grow_within_limit(inputs, spec->side[d]);
    size_t samples = *inputs, targets = spec->outputs, matrix = *inputs;
    fits = fits && grow_within_limit(&samples, spec->count) &&
           grow_within_limit(&targets, spec->count) && grow_within_limit(&matrix, spec->outputs);
    if (!fits) return error_set(err, STATUS_USAGE, "%s: that takes more than 8 GiB", name);
    if (spec->sides == 3 && spec->outputs < 2)
        return error_set(err, STATUS_USAGE, "%s: a classification needs at least 2 classes", name);
    return 0;
}

int synthetic_open(const char *name, const DataOptions *options, DataSource *source, Error *err) {
    DataSpec spec;
    size_t inputs = 0;
    if (synthetic_parse(name, &spec, &inputs, err) != 0) return -1;
    const uint64_t seed = options->seed;
    const size_t hidden = spec.sides == 3 ? 0 : TEACHER_HIDDEN, tests = spec.count / 4;
    Teacher teacher = teacher_create(seed, inputs, hidden, spec.outputs);
    double entropies = make_samples(&source->train, &spec, &teacher, seed, 0, spec.count);
    make_samples(&source->test, &spec, &teacher, seed, SYNTHETIC_TEST_FIRST, tests ? tests : 1);
    teacher_close(&teacher);
    source->loss_floor = hidden ? TEACHER_NOISE * TEACHER_NOISE : entropies / (double)spec.count;
    return 0;
}
