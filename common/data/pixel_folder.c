/* pixel_folder.c: a folder of the user's pictures with a label for every pixel:
 *
 *   DIR/train/NAME.ppm   a picture        DIR/train/NAME.pgm   the labels of its pixels
 *   DIR/test/NAME.ppm                     DIR/test/NAME.pgm
 *
 * Binary PPM ("P6": red, green, blue) and PGM ("P5": gray), a byte per value. A label is the gray
 * value of its pixel: 0, 1, 2, ... are classes; options->ignore_label becomes LABEL_IGNORE. The
 * number of classes is the training set's largest label + 1. All pictures have one size. Their
 * order is that of their names' bytes, the same on every machine. Files with other endings are
 * ignored.
 *
 * Two passes over the files: the first one reads and compares all headers, so memory is allocated
 * only for a complete and consistent set.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/data/formats.h"

enum { ENDING = 4, GRAYS = 256 };                 // ".ppm"
enum { HEADER_MAX = 4096 };                       // bytes, comments included
enum { SIDE_MAX = 65536 };                        // pixels
static const size_t MAX_PIXELS = (size_t)1 << 28; // of a data set: 3 GiB, mostly labels

typedef struct Split { // DIR/train or DIR/test
    char *folder;
    struct dirent **entries; // [count]: picture, its labels, picture, ...
    int count;
} Split;

bool pixel_folder_present(const char *folder) {
    return file_exists("%s/train/.", folder) || file_exists("%s/test/.", folder); // folders only
}

// ---- names ------------------------------------------------------------------------------------

static int is_wanted(const struct dirent *entry) {
    const char *name = entry->d_name;
    return *name != '.' && (format_ends_with(name, ".ppm") || format_ends_with(name, ".pgm"));
}

// Orders by name; of one name, the picture (.ppm) precedes its labels (.pgm).
static int compare_entries(const struct dirent **a, const struct dirent **b) {
    const char *x = (*a)->d_name, *y = (*b)->d_name;
    size_t x_stem = strlen(x) - ENDING, y_stem = strlen(y) - ENDING;
    int order = memcmp(x, y, x_stem < y_stem ? x_stem : y_stem);
    if (order == 0 && x_stem != y_stem) order = x_stem < y_stem ? -1 : 1;
    return order != 0 ? order : -strcmp(x + x_stem, y + y_stem);
}

// Lists the folder. Every picture must have labels, so the sorted names alternate.
static int list_split(const char *folder, const char *name, Split *split, Error *err) {
    split->folder = memory_format("%s/%s", folder, name);
    const int count = scandir(split->folder, &split->entries, is_wanted, compare_entries);
    split->count = count > 0 ? count : 0;
    if (count <= 0)
        return error_set(err, STATUS_USAGE, "%s: %s", split->folder,
                         count < 0 ? strerror(errno) : "no pictures in it (NAME.ppm and NAME.pgm)");
    for (int i = 0; i < count; i += 2) {
        const char *this = split->entries[i]->d_name;
        const char *next = i + 1 < count ? split->entries[i + 1]->d_name : "";
        size_t stem = strlen(this) - ENDING;
        bool is_picture = format_ends_with(this, ".ppm");
        if (is_picture && strlen(next) == stem + ENDING && memcmp(this, next, stem) == 0) continue;
        return error_set(err, STATUS_USAGE, "%s/%s has no %.*s%s beside it", split->folder, this,
                         (int)stem, this, is_picture ? ".pgm with its labels" : ".ppm");
    }
    return 0;
}

// ---- pictures ---------------------------------------------------------------------------------

// The next byte of the header; EOF at the file's end or after HEADER_MAX bytes.
static int next_byte(FILE *file) {
    return ftell(file) < HEADER_MAX ? getc(file) : EOF;
}

// Skips white space and comments, and reads a number of at most SIDE_MAX. Returns -1 if there is
// none.
static long read_number(FILE *file) {
    int c = next_byte(file);
    while (isspace(c) || c == '#') {
        if (c == '#')
            while (c != '\n' && c != EOF) c = next_byte(file);
        c = next_byte(file);
    }
    long number = 0;
    for (; isdigit(c); c = next_byte(file)) {
        number = 10 * number + (c - '0');
        if (number > SIDE_MAX) return -1;
    }
    return isspace(c) ? number : -1; // consumes the one byte of white space that ends it
}

// Reads the header, which must fit the file's length in bytes and set->shape; zeros there are
// replaced by the picture's.
static int read_header(FILE *file, size_t bytes, bool labels, Dataset *set, Error *err) {
    int p = getc(file), kind = getc(file);
    if (p != 'P' || (kind != '5' && kind != '6'))
        return error_set(err, STATUS_USAGE,
                         "no binary PPM or PGM file: these begin with P6 and P5");
    long width = read_number(file), height = read_number(file), largest = read_number(file);
    if (width <= 0 || height <= 0)
        return error_set(err, STATUS_USAGE, "the header has no width and height from 1 to %d",
                         SIDE_MAX);
    if (largest != 255) return error_set(err, STATUS_USAGE, "only values from 0 to 255 are read");
    size_t channels = kind == '6' ? 3 : 1, follow = bytes - (size_t)ftell(file);
    size_t wanted = channels * (size_t)height * (size_t)width;
    if (follow != wanted)
        return error_set(err, STATUS_USAGE,
                         "the header says %ldx%ld pixels, %zu byte%s; %zu byte%s follow%s", width,
                         height, wanted, format_s(wanted), follow, format_s(follow),
                         follow == 1 ? "s" : "");
    if (labels != (channels == 1))
        return error_set(err, STATUS_USAGE, "is a %s file inside", labels ? "PPM" : "PGM");
    const size_t shape[] = {channels, (size_t)height, (size_t)width};
    if (set->shape[0] == 0) memcpy(set->shape, shape, sizeof shape);
    if (memcmp(set->shape + 1, shape + 1, 2 * sizeof *shape) == 0) return 0;
    return error_set(err, STATUS_USAGE,
                     "is %ldx%ld pixels, the first picture %zux%zu: all must be of one size", width,
                     height, set->shape[2], set->shape[1]);
}

// Reads pixels[channels, h, w].
static int read_pixels(FILE *file, size_t channels, const Dataset *set, uint8_t *pixels,
                       Error *err) {
    size_t height = set->shape[1], width = set->shape[2];
    uint8_t *row = memory_zalloc(width * channels); // of the file: RGBRGB...
    int status = 0;
    for (size_t y = 0; y < height && status == 0; y++) {
        if (fread(row, channels, width, file) != width)
            status = error_set(err, STATUS_USAGE, "row %zu cannot be read", y);
        for (size_t x = 0; x < width; x++)
            for (size_t c = 0; c < channels; c++)
                pixels[(c * height + y) * width + x] = row[x * channels + c];
    }
    free(row);
    return status;
}

// Reads entry i: its header, which is compared with set->shape (zeros are replaced), and, unless
// pixels is NULL, its pixels.
static int read_entry(const Split *split, int i, Dataset *set, uint8_t *pixels, Error *err) {
    size_t bytes = 0;
    bool labels = i % 2 == 1;
    int status = -1;
    char *path = memory_format("%s/%s", split->folder, split->entries[i]->d_name);
    FILE *file = file_open_stream(path, &bytes, err);
    if (file) {
        status = read_header(file, bytes, labels, set, err);
        if (status == 0 && pixels)
            status = read_pixels(file, labels ? 1 : set->shape[0], set, pixels, err);
        if (status != 0) error_prefix(err, "%s", path);
        fclose(file);
    }
    free(path);
    return status;
}

// ---- labels -----------------------------------------------------------------------------------

// The largest label below `limit` that was seen, or -1.
static int largest_below(const size_t seen[GRAYS], int limit) {
    int label = limit - 1;
    while (label >= 0 && seen[label] == 0) label--;
    return label;
}

// Sets the training set's number of classes; checks the test set's labels against it. 255 after a
// gap is probably not a class: most tools mark ignored pixels with it.
static int check_classes(const Split *split, const size_t seen[GRAYS], Dataset *set, Error *err) {
    int largest = largest_below(seen, GRAYS), second = largest_below(seen, largest);
    if (set->classes > 0 && largest >= (int)set->classes)
        return error_set(err, STATUS_USAGE, "%s: label %d is outside the training set's 0..%zu",
                         split->folder, largest, set->classes - 1);
    if (set->classes > 0) return 0;
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

// Reads the headers, which sets the shape of a training set, then the pictures and labels.
static int read_split(const Split *split, int ignore_label, Dataset *set, Error *err) {
    int status = 0;
    for (int i = 0; i < split->count && status == 0; i++)
        status = read_entry(split, i, set, NULL, err);
    if (status != 0) return status;
    size_t plane = set->shape[1] * set->shape[2], size = set->shape[0] * plane, seen[GRAYS] = {0};
    set->count = (size_t)split->count / 2;
    if (set->count > MAX_PIXELS / plane)
        return error_set(err, STATUS_USAGE, "%s: %zu pictures of %zux%zu pixels take over 3 GiB",
                         split->folder, set->count, set->shape[2], set->shape[1]);
    set->dense = true;
    set->bytes = memory_zalloc(set->count * size);
    set->labels = memory_zalloc(set->count * plane * sizeof *set->labels);
    uint8_t *grays = memory_zalloc(plane);
    // Headers are checked again, because the files may have changed since.
    for (size_t i = 0; i < set->count && status == 0; i++) {
        status = read_entry(split, (int)(2 * i), set, set->bytes + i * size, err);
        if (status == 0) status = read_entry(split, (int)(2 * i + 1), set, grays, err);
        for (size_t p = 0; p < plane; p++) {
            const bool ignored = grays[p] == ignore_label;
            set->labels[i * plane + p] = ignored ? LABEL_IGNORE : grays[p];
            if (!ignored) seen[grays[p]]++; // the labels' histogram
        }
    }
    free(grays);
    return status == 0 ? check_classes(split, seen, set, err) : status;
}

static int open_split(const char *folder, const char *name, int ignore_label, Dataset *set,
                      Error *err) {
    Split split = {.count = 0};
    int status = list_split(folder, name, &split, err);
    if (status == 0) status = read_split(&split, ignore_label, set, err);
    for (int i = 0; i < split.count; i++) free(split.entries[i]);
    free(split.entries);
    free(split.folder);
    return status;
}

int pixel_folder_open(const char *folder, const DataOptions *options, DataSource *source,
                      Error *err) {
    Dataset *train = &source->train, *test = &source->test;
    if (open_split(folder, "train", options->ignore_label, train, err) != 0) return -1;
    memcpy(test->shape, train->shape, sizeof test->shape);
    test->classes = train->classes;
    return open_split(folder, "test", options->ignore_label, test, err);
}
