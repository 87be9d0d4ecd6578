/* compare_tensors.c: are two safetensors files the same, and if not, how far apart?
 *
 * An element passes if |a - b| <= tol + rtol * |b| (as numpy.allclose); with --bitwise, if its bits
 * are the same. NaN never passes, infinity only against itself; I64 must be equal in either mode; a
 * tensor that one file lacks or whose shape differs fails. Metadata and order are not compared.
 *
 * Exit status: 0 all passed, 1 something did not, 2 a file cannot be read or there is nothing to
 * compare (an empty comparison must not look like a passed one).
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/format.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "common/tensor_files/safetensors.h"

typedef struct Settings {
    double tol, rtol;
    bool bitwise, csv;
    const char *only;
} Settings;

// How far tensor a is from tensor b.
typedef struct Distance {
    size_t count;
    double max_abs, max_rel; // NaN: not comparable, or a NaN among the elements
    double max_b;            // the largest |b|: the scale of the tensor; 0 if b is all zeros
    uint64_t max_ulp;        // floats representable between a and b; for I64 their difference
    double dot, aa, bb;      // sums for the cosine
    bool same_bits, close;   // of all elements
} Distance;

typedef struct Tally {
    size_t tensors, failed, same_bits;
    const char *worst;      // a failed tensor if there is one
    double worst_abs;       // its max_abs, or infinity where that is NaN
    const char *worst_note; // the reason of a NaN; "" otherwise
} Tally;

// ---- elements -----------------------------------------------------------------------------------

// Numbers the floats in ascending order: neighbours differ by 1, and -0 has the number of +0.
static int64_t ordered(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? -(int64_t)(bits & INT32_MAX) : bits;
}

static uint64_t apart(int64_t a, int64_t b) {
    return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

static void add_element(Distance *d, double a, double b, double difference, uint64_t ulp) {
    double size = larger(fabs(a), fabs(b));
    double relative = difference > 0 ? difference / size : 0;
    if (isnan(relative)) relative = INFINITY; // infinity compared with a number
    d->max_abs = larger(difference, d->max_abs);
    d->max_rel = larger(relative, d->max_rel);
    d->max_b = larger(fabs(b), d->max_b);
    if (ulp > d->max_ulp) d->max_ulp = ulp;
    d->dot += a * b;
    d->aa += a * a;
    d->bb += b * b;
}

static Distance compare_f32(const SafeEntry *x, const SafeEntry *y, const Settings *settings) {
    Distance d = {.count = x->bytes / sizeof(float), .close = true};
    const float *xs = x->data, *ys = y->data;
    size_t nans = 0;
    for (size_t i = 0; i < d.count; i++) {
        double a = (double)xs[i], b = (double)ys[i];
        if (isnan(a) || isnan(b)) {
            nans++;
            continue;
        }
        double difference = a == b ? 0 : fabs(a - b); // infinity minus itself would be NaN
        bool near = isfinite(difference) &&
                    (difference == 0 || difference <= settings->tol + settings->rtol * fabs(b));
        if (!near) d.close = false;
        add_element(&d, a, b, difference, apart(ordered(xs[i]), ordered(ys[i])));
    }
    d.same_bits = nans == 0 && memcmp(xs, ys, x->bytes) == 0;
    if (nans > 0) {
        d.close = false;
        d.max_abs = d.max_rel = NAN;
    }
    return d;
}

static Distance compare_i64(const SafeEntry *x, const SafeEntry *y) {
    Distance d = {.count = x->bytes / sizeof(int64_t)};
    for (size_t i = 0; i < d.count; i++) {
        int64_t a, b; // copied: in another program's file they need not be aligned
        memcpy(&a, (const char *)x->data + i * sizeof a, sizeof a);
        memcpy(&b, (const char *)y->data + i * sizeof b, sizeof b);
        add_element(&d, (double)a, (double)b, (double)apart(a, b), apart(a, b));
    }
    d.same_bits = d.close = memcmp(x->data, y->data, x->bytes) == 0;
    return d;
}

// ---- tensors ------------------------------------------------------------------------------------

static bool same_type(const SafeEntry *x, const SafeEntry *y) {
    return x->dtype == y->dtype && x->ndim == y->ndim &&
           memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape) == 0;
}

// Measures the distance of two entries of one name. y is NULL if the other file lacks it.
static Distance compare_entries(const SafeEntry *x, const SafeEntry *y, const Settings *settings) {
    if (!y || !same_type(x, y)) {
        size_t count = x->bytes / dtype_bytes(x->dtype);
        return (Distance){.count = count, .max_abs = NAN, .max_rel = NAN};
    }
    return x->dtype == DTYPE_F32 ? compare_f32(x, y, settings) : compare_i64(x, y);
}

// The cosine of the angle between a and b as vectors; two zero vectors agree.
static double cosine(const Distance *d) {
    if (isnan(d->max_abs)) return NAN;
    if (d->aa == 0 || d->bb == 0) return d->aa == d->bb ? 1 : 0;
    return d->dot / (sqrt(d->aa) * sqrt(d->bb));
}

static void print_csv_row(const char *name, const Distance *d) {
    bool quoted = strpbrk(name, ",\"") != NULL;
    if (quoted) putchar('"');
    for (; *name; name++) printf("%s%c", *name == '"' ? "\"" : "", *name);
    if (quoted) putchar('"');
    printf(",%zu,%.9g,%.9g,", d->count, d->max_abs, d->max_rel);
    if (isnan(d->max_abs))
        printf("nan");
    else
        printf("%llu", (unsigned long long)d->max_ulp);
    printf(",%d,%.9g\n", d->same_bits, d->max_b);
}

static void print_row(const SafeEntry *x, const Distance *d, const char *note, int name_width) {
    Tensor tensor = tensor_make(NULL, x->dtype, x->ndim, x->shape, NULL);
    printf("%-*s  %s  %-16s %9zu", name_width, x->name, dtype_name(x->dtype),
           tensor_describe(&tensor).text, d->count);
    if (*note) {
        printf("  %s\n", note);
        return;
    }
    printf("  %10.4g  %10.4g  %10llu  %13.10f%s\n", d->max_abs, d->max_rel,
           (unsigned long long)d->max_ulp, cosine(d), d->same_bits ? "  same bits" : "");
}

static const char *why_not(const SafeEntry *x, const SafeEntry *y, const Distance *d, bool from_b) {
    if (!y) return from_b ? "missing in A" : "missing in B";
    if (!same_type(x, y)) return "has another dtype or shape in B";
    return isnan(d->max_abs) ? "holds NaN" : "";
}

static void compare_one(const SafeEntry *x, const SafeEntry *y, bool from_b,
                        const Settings *settings, int name_width, Tally *tally) {
    Distance d = compare_entries(x, y, settings);
    bool passed = settings->bitwise ? d.same_bits : d.close;
    const char *note = why_not(x, y, &d, from_b);
    double far = isnan(d.max_abs) ? INFINITY : d.max_abs;
    bool first_failure = !passed && tally->failed == 0;
    bool worse = passed == (tally->failed == 0) && far > tally->worst_abs;
    if (!tally->worst || first_failure || worse) {
        tally->worst = x->name;
        tally->worst_abs = far;
        tally->worst_note = note;
    }
    tally->tensors++;
    tally->failed += !passed;
    tally->same_bits += d.same_bits;
    if (settings->csv)
        print_csv_row(x->name, &d);
    else
        print_row(x, &d, note, name_width);
}

// ---- files --------------------------------------------------------------------------------------

static bool wanted(const SafeEntry *entry, const Settings *settings) {
    return strncmp(entry->name, settings->only, strlen(settings->only)) == 0;
}

static int widest_name(const SafeTensors *files, const Settings *settings) {
    size_t widest = strlen("tensor");
    for (int f = 0; f < 2; f++) {
        for (size_t i = 0; i < files[f].count; i++) {
            size_t length = strlen(files[f].entries[i].name);
            if (wanted(&files[f].entries[i], settings) && length > widest) widest = length;
        }
    }
    return (int)widest;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const SafeEntry *const *)a)->name, (*(const SafeEntry *const *)b)->name);
}

// The file's entries, sorted by their names: [count], free() it.
static const SafeEntry **make_index(const SafeTensors *file) {
    const SafeEntry **index = memory_zalloc((file->count + 1) * sizeof *index);
    for (size_t i = 0; i < file->count; i++) index[i] = &file->entries[i];
    qsort(index, file->count, sizeof *index, by_name);
    return index;
}

// Finds the entry that has x's name. NULL if there is none.
static const SafeEntry *find(const SafeEntry *const *index, size_t count, const SafeEntry *x) {
    const SafeEntry *const *found = bsearch(&x, index, count, sizeof *index, by_name);
    return found ? *found : NULL;
}

static Tally compare_files(const SafeTensors *files, const Settings *settings) {
    Tally tally = {0};
    const SafeEntry **in_a = make_index(&files[0]), **in_b = make_index(&files[1]);
    int width = widest_name(files, settings);
    if (settings->csv)
        puts("tensor,count,max_abs,max_rel,max_ulp,bitwise,max_b");
    else
        printf("%-*s  %s %-16s %9s  %10s  %10s  %10s  %13s\n", width, "tensor", "type", "shape",
               "count", "max |a-b|", "max rel", "max ulp", "cosine");
    for (size_t i = 0; i < files[0].count; i++) {
        const SafeEntry *x = &files[0].entries[i];
        if (!wanted(x, settings)) continue;
        compare_one(x, find(in_b, files[1].count, x), false, settings, width, &tally);
    }
    for (size_t i = 0; i < files[1].count; i++) { // tensors that only the second file has
        const SafeEntry *y = &files[1].entries[i];
        if (!wanted(y, settings) || find(in_a, files[0].count, y)) continue;
        compare_one(y, NULL, true, settings, width, &tally);
    }
    free(in_a);
    free(in_b);
    return tally;
}

static void print_result(const Tally *tally, const Settings *settings) {
    FILE *stream = settings->csv ? stderr : stdout; // stdout has the rows only
    if (tally->failed == 0 && tally->same_bits == tally->tensors) {
        fprintf(stream, "result: equal bits (%zu tensor%s)\n", tally->tensors,
                format_s(tally->tensors));
        return;
    }
    fprintf(stream, "result: %s: worst tensor %s ",
            tally->failed > 0 ? "differ" : "within tolerance", tally->worst);
    if (*tally->worst_note)
        fprintf(stream, "(%s)", tally->worst_note);
    else
        fprintf(stream, "(max |a-b| %.4g)", tally->worst_abs);
    fprintf(stream, "; %zu of %zu tensor%s failed\n", tally->failed, tally->tensors,
            format_s(tally->tensors));
}

static Options make_options(Settings *s) {
    Options options = {.program = "compare_tensors",
                       .summary =
                           "Compares two safetensors files tensor by tensor.\n"
                           "It prints the largest absolute and relative difference, the largest\n"
                           "distance in units of the last place, and the cosine.\n"
                           "Exit status: 0 they agree, 1 they do not, 2 a file cannot be read.\n\n"
                           "  compare_tensors dp.safetensors ddp.safetensors --bitwise",
                       .positional_max = 2};
    options_add_title(&options, "What passes");
    options_add_float(&options, "tol", &s->tol, 0, 1e300,
                      "an element passes if |a-b| <= tol + rtol*|b|");
    options_add_float(&options, "rtol", &s->rtol, 0, 1e300, "see --tol");
    options_add_flag(&options, "bitwise", &s->bitwise,
                     "only equal bits pass; the tolerances do not count");
    options_add_title(&options, "What is compared and printed");
    options_add_string(&options, "only", &s->only, "PREFIX",
                       "compare the tensors whose names begin with PREFIX");
    options_add_flag(&options, "csv", &s->csv,
                     "one row per tensor on stdout, the result on stderr");
    return options;
}

int main(int argc, char **argv) {
    Settings settings = {.tol = 1e-6, .rtol = 1e-5, .only = ""};
    Options options = make_options(&settings);
    Error err = {0};
    if (argc < 2) {
        options_print_help(&options, stderr);
        return STATUS_USAGE;
    }
    must_do(options_parse(&options, argc, argv, &err), &err);
    if (options.positional_count != 2)
        must_do(error_set(&err, STATUS_USAGE, "two files are needed (see --help)"), &err);
    SafeTensors files[2] = {0};
    for (int f = 0; f < 2; f++)
        must_do(safetensors_read(options.positional[f], &files[f], &err), &err);
    Tally tally = compare_files(files, &settings);
    if (tally.tensors == 0)
        must_do(error_set(&err, STATUS_USAGE, "there is no tensor to compare in %s and %s",
                          options.positional[0], options.positional[1]),
                &err);
    print_result(&tally, &settings);
    must_do(log_check_stdout(&err), &err);
    for (int f = 0; f < 2; f++) safetensors_free(&files[f]);
    return tally.failed > 0 ? STATUS_FAILED : STATUS_OK;
}
