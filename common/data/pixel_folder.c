/* pixel_folder.c: see pixel_folder.h.
 *
 * Two passes over the files: the first one reads and compares all headers, so memory is allocated
 * only for a complete and consistent set.
 */
#include "common/data/pixel_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/memory.h"
#include "common/data/netpbm.h"

enum { ENDING = 4, GRAYS = 256 };                 // ".ppm"
static const size_t MAX_PIXELS = (size_t)1 << 28; // of a set: 3 GiB, most of it the labels

typedef struct Split { // DIR/train or DIR/test
    char *folder;
    struct dirent **entries; // [count]: picture, its labels, picture, ...
    int count;
} Split;

static bool is_folder(const char *parent, const char *name) {
    struct stat about;
    char *path = memory_format("%s/%s", parent, name);
    bool is = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    free(path);
    return is;
}

bool pixel_folder_present(const char *folder) {
    return is_folder(folder, "train") || is_folder(folder, "test");
}

// ---- names ------------------------------------------------------------------------------------

static bool ends_with(const char *name, const char *ending) {
    size_t length = strlen(name);
    return length > ENDING && strcmp(name + length - ENDING, ending) == 0;
}

static int is_wanted(const struct dirent *entry) {
    if (entry->d_name[0] == '.') return 0;
    return ends_with(entry->d_name, ".ppm") || ends_with(entry->d_name, ".pgm");
}

// Orders by name; of one name, the picture (.ppm) precedes its labels (.pgm).
static int compare_entries(const struct dirent **a, const struct dirent **b) {
    const char *x = (*a)->d_name, *y = (*b)->d_name;
    size_t x_stem = strlen(x) - ENDING, y_stem = strlen(y) - ENDING;
    int order = memcmp(x, y, x_stem < y_stem ? x_stem : y_stem);
    if (order == 0 && x_stem != y_stem) order = x_stem < y_stem ? -1 : 1;
    return order != 0 ? order : -strcmp(x + x_stem, y + y_stem);
}

// Checks that every picture has labels, so the sorted names alternate.
static int check_pairs(const Split *split, Error *err) {
    for (int i = 0; i < split->count; i += 2) {
        const char *name = split->entries[i]->d_name;
        const char *next = i + 1 < split->count ? split->entries[i + 1]->d_name : "";
        size_t stem = strlen(name) - ENDING;
        bool is_picture = ends_with(name, ".ppm");
        if (is_picture && strlen(next) == stem + ENDING && memcmp(name, next, stem) == 0) continue;
        return error_set(err, STATUS_USAGE, "%s/%s has no %.*s%s beside it", split->folder, name,
                         (int)stem, name, is_picture ? ".pgm with its labels" : ".ppm");
    }
    return 0;
}

static int list_split(const char *folder, const char *name, Split *split, Error *err) {
    split->folder = memory_format("%s/%s", folder, name);
    split->count = scandir(split->folder, &split->entries, is_wanted, compare_entries);
    if (split->count < 0) {
        split->count = 0;
        return error_set(err, STATUS_USAGE, "%s: %s", split->folder, strerror(errno));
    }
    if (split->count == 0)
        return error_set(err, STATUS_USAGE, "%s: no pictures in it (NAME.ppm and NAME.pgm)",
                         split->folder);
    return check_pairs(split, err);
}

static void free_split(Split *split) {
    for (int i = 0; i < split->count; i++) free(split->entries[i]);
    if (split->entries) free(split->entries);
    free(split->folder);
}

static char *path_of(const Split *split, int i) {
    return memory_format("%s/%s", split->folder, split->entries[i]->d_name);
}

// ---- sizes ------------------------------------------------------------------------------------

static int check_shape(const Netpbm *picture, bool labels, Dataset *set, Error *err) {
    if (labels != (picture->channels == 1))
        return error_set(err, STATUS_USAGE, "%s: is a %s file inside", picture->path,
                         labels ? "PPM" : "PGM");
    if (set->shape[0] == 0) {
        set->shape[0] = picture->channels;
        set->shape[1] = picture->height;
        set->shape[2] = picture->width;
    }
    if (picture->height == set->shape[1] && picture->width == set->shape[2]) return 0;
    return error_set(err, STATUS_USAGE,
                     "%s: is %zux%zu pixels, the first picture %zux%zu: all must be of one size",
                     picture->path, picture->width, picture->height, set->shape[2], set->shape[1]);
}

// Opens every file and compares its size with set->shape: the training set's, or zeros, which the
// first picture replaces. Sets the count.
static int check_sizes(const Split *split, Dataset *set, Error *err) {
    int status = 0;
    for (int i = 0; i < split->count && status == 0; i++) {
        Netpbm picture;
        char *path = path_of(split, i);
        status = netpbm_open(path, &picture, err);
        if (status == 0) {
            status = check_shape(&picture, i % 2 == 1, set, err);
            netpbm_close(&picture);
        }
        free(path);
    }
    set->count = (size_t)split->count / 2;
    if (status == 0 && set->count > MAX_PIXELS / (set->shape[1] * set->shape[2]))
        return error_set(err, STATUS_USAGE, "%s: %zu pictures of %zux%zu pixels take over 3 GiB",
                         split->folder, set->count, set->shape[2], set->shape[1]);
    return status;
}

// ---- pixels and labels ------------------------------------------------------------------------

// Reads one file. Its size is checked again, because the file may have changed since.
static int read_file(const Split *split, int i, const Dataset *set, uint8_t *pixels, Error *err) {
    Netpbm picture;
    char *path = path_of(split, i);
    Dataset same = *set;
    int status = netpbm_open(path, &picture, err);
    if (status == 0) {
        status = check_shape(&picture, i % 2 == 1, &same, err);
        if (status == 0) status = netpbm_read(&picture, pixels, err);
        netpbm_close(&picture);
    }
    free(path);
    return status;
}

// Converts grays[pixels] to labels, and adds their histogram to `seen`.
static void store_labels(const uint8_t *grays, size_t pixels, int ignore_label, int64_t *labels,
                         size_t seen[GRAYS]) {
    for (size_t p = 0; p < pixels; p++) {
        bool ignored = grays[p] == ignore_label;
        labels[p] = ignored ? LABEL_IGNORE : grays[p];
        if (!ignored) seen[grays[p]]++;
    }
}

// The largest label below `limit` that was seen, or -1.
static int largest_below(const size_t seen[GRAYS], int limit) {
    int label = limit - 1;
    while (label >= 0 && seen[label] == 0) label--;
    return label;
}

// 255 after a gap is probably not a class: most tools mark ignored pixels with it.
static int count_classes(const Split *split, const size_t seen[GRAYS], Dataset *set, Error *err) {
    int largest = largest_below(seen, GRAYS), second = largest_below(seen, largest);
    if (largest < 0)
        return error_set(err, STATUS_USAGE, "%s: every pixel has the label that is to be ignored",
                         split->folder);
    if (largest == GRAYS - 1 && second < largest - 1)
        return error_set(
            err, STATUS_USAGE,
            "%s: labels up to %d, and then 255: is that no class? (--ignore-label 255)",
            split->folder, second);
    set->classes = (size_t)largest + 1;
    return 0;
}

static int check_classes(const Split *split, const size_t seen[GRAYS], const Dataset *set,
                         Error *err) {
    int largest = largest_below(seen, GRAYS);
    if (largest < (int)set->classes) return 0;
    return error_set(err, STATUS_USAGE, "%s: label %d is outside the training set's 0..%zu",
                     split->folder, largest, set->classes - 1);
}

static int read_split(const Split *split, int ignore_label, Dataset *set, Error *err) {
    size_t plane = set->shape[1] * set->shape[2], seen[GRAYS] = {0};
    set->dense = true;
    set->bytes = memory_zalloc(set->count * set->shape[0] * plane);
    set->labels = memory_zalloc(set->count * plane * sizeof *set->labels);
    uint8_t *grays = memory_zalloc(plane);
    int status = 0;
    for (size_t i = 0; i < set->count && status == 0; i++) {
        status = read_file(split, (int)(2 * i), set, set->bytes + i * set->shape[0] * plane, err);
        if (status == 0) status = read_file(split, (int)(2 * i + 1), set, grays, err);
        store_labels(grays, plane, ignore_label, set->labels + i * plane, seen);
    }
    free(grays);
    if (status != 0) return status;
    return set->classes == 0 ? count_classes(split, seen, set, err)
                             : check_classes(split, seen, set, err);
}

static int open_split(const char *folder, const char *name, int ignore_label, Dataset *set,
                      Error *err) {
    Split split = {.count = 0};
    int status = list_split(folder, name, &split, err);
    if (status == 0) status = check_sizes(&split, set, err);
    if (status == 0) status = read_split(&split, ignore_label, set, err);
    free_split(&split);
    return status;
}

int pixel_folder_open(const char *folder, int ignore_label, DataSource *source, Error *err) {
    Dataset *train = &source->train, *test = &source->test;
    if (open_split(folder, "train", ignore_label, train, err) != 0) return -1;
    memcpy(test->shape, train->shape, sizeof test->shape);
    test->classes = train->classes;
    return open_split(folder, "test", ignore_label, test, err);
}
