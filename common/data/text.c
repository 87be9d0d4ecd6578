/* text.c: see text.h.
 *
 * A text is read whole, plain or gzipped, and decoded to code points before it is tokenized,
 * because the vocabulary is that of the whole training part. A token file's header must match the
 * file's size, which is checked before memory is allocated.
 */
#include "common/data/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "common/base/file.h"
#include "common/base/format.h"
#include "common/base/memory.h"

enum { CODE_POINTS = 0x110000, MAX_VOCABULARY = 1 << 16, FIRST_READ = 1 << 20 };
static const size_t MAX_TEXT = (size_t)1 << 28;   // bytes of a text file, unpacked
static const size_t MAX_TOKENS = (size_t)1 << 32; // of a token file: 8 GiB

// ---- windows -----------------------------------------------------------------------------------

// Stores the tokens in the set, which then owns them, and divides them into windows.
static int set_windows(Dataset *set, uint16_t *tokens, size_t count, const char *path,
                       TextShape shape, Error *err) {
    CHECK(shape.context > 0, "windows of %zu tokens", shape.context);
    set->tokens = tokens;
    set->token_count = count;
    set->shape[0] = shape.context;
    set->shape[1] = set->shape[2] = 1;
    if (count <= shape.context)
        return error_set(err, STATUS_USAGE,
                         "%s: a part of it has %zu token%s; a sample is %zu and their successors "
                         "(--context)",
                         path, count, format_s(count), shape.context);
    set->count = (count - 1) / shape.context;
    return 0;
}

// Sets the vocabulary's size. found: how many distinct tokens the data has.
static int set_vocabulary(DataSource *source, size_t found, const char *path, TextShape shape,
                          Error *err) {
    if (found > MAX_VOCABULARY)
        return error_set(err, STATUS_USAGE, "%s: more than %d different characters", path,
                         MAX_VOCABULARY);
    if (shape.vocabulary > 0 && shape.vocabulary < found)
        return error_set(err, STATUS_USAGE, "%s: has %zu different tokens, --vocabulary is %zu",
                         path, found, shape.vocabulary);
    source->train.classes = shape.vocabulary ? shape.vocabulary : found;
    source->test.classes = source->train.classes;
    return 0;
}

// ---- characters --------------------------------------------------------------------------------

bool text_names_file(const char *path) {
    size_t length = strlen(path);
    return (length > 4 && strcmp(path + length - 4, ".txt") == 0) ||
           (length > 7 && strcmp(path + length - 7, ".txt.gz") == 0);
}

// Reads a file to its end, at most MAX_TEXT bytes of it. The caller frees *text, also after a
// failure.
static int read_text(const char *path, uint8_t **text, size_t *bytes, Error *err) {
    int fd = file_open(path, NULL, err);
    if (fd < 0) return -1;
    gzFile file = gzdopen(fd, "rb");
    CHECK(file, "no stream for %s", path);
    errno = 0;
    int got = 1;
    for (size_t room = 0; got > 0 && *bytes <= MAX_TEXT; *bytes += (size_t)(got > 0 ? got : 0)) {
        if (*bytes == room) room = room ? 2 * room : FIRST_READ;
        *text = memory_grow(*text, room, 1);
        got = gzread(file, *text + *bytes, (unsigned)(room - *bytes));
    }
    int status;
    const char *why = gzerror(file, &status);
    if (status == Z_ERRNO) why = strerror(errno);
    if (status == Z_BUF_ERROR) why = "the gzip file is truncated";
    int failed = 0;
    if (*bytes > MAX_TEXT)
        failed =
            error_set(err, STATUS_USAGE, "%s: more than %zu MiB of text; make token files of it",
                      path, MAX_TEXT >> 20);
    else if (status != Z_OK && status != Z_STREAM_END)
        failed = error_set(err, STATUS_USAGE, "%s: %s", path, why);
    gzclose(file);
    return failed;
}

// Decodes the character at *at and moves *at past it. Returns false if it is not UTF-8.
static bool next_character(const uint8_t *text, size_t bytes, size_t *at, uint32_t *character) {
    static const uint32_t SMALLEST[] = {0, 0x80, 0x800, 0x10000};
    uint8_t lead = text[*at];
    size_t more = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    if ((lead >= 0x80 && lead < 0xc0) || lead >= 0xf8 || bytes - *at <= more) return false;
    *character = more == 0 ? lead : lead & (0x3fu >> more);
    for (size_t i = 1; i <= more; i++) {
        uint8_t next = text[*at + i];
        if ((next & 0xc0) != 0x80) return false;
        *character = *character << 6 | (next & 0x3f);
    }
    *at += more + 1;
    return *character >= SMALLEST[more] && *character < CODE_POINTS &&
           (*character < 0xd800 || *character > 0xdfff);
}

// Decodes UTF-8 to code points: *characters is [*count]. The caller frees it, also after a failure.
static int decode(const char *path, const uint8_t *text, size_t bytes, uint32_t **characters,
                  size_t *count, Error *err) {
    *characters = memory_zalloc((bytes + 1) * sizeof **characters);
    for (size_t at = 0; at < bytes;) {
        size_t begin = at;
        if (!next_character(text, bytes, &at, &(*characters)[(*count)++]))
            return error_set(err, STATUS_USAGE, "%s: byte %zu is not UTF-8", path, begin);
    }
    return 0;
}

// Numbers the characters of the training part in ascending order, then TEXT_UNKNOWN if the test
// part has other characters. number: [CODE_POINTS], 0: no token, otherwise the token plus 1.
static size_t number_characters(const uint32_t *characters, size_t training, size_t count,
                                uint32_t *number, uint32_t *vocabulary) {
    size_t found = 0;
    bool unknown = false;
    for (size_t i = 0; i < training; i++) number[characters[i]] = 1;
    for (uint32_t c = 0; c < CODE_POINTS; c++) {
        if (number[c] == 0) continue;
        vocabulary[found] = c;
        number[c] = (uint32_t)++found;
    }
    for (size_t i = training; i < count && !unknown; i++) unknown = number[characters[i]] == 0;
    if (unknown && number[TEXT_UNKNOWN] == 0) {
        vocabulary[found] = TEXT_UNKNOWN;
        number[TEXT_UNKNOWN] = (uint32_t)++found;
    }
    return found;
}

static uint16_t *tokens_of(const uint32_t *characters, size_t count, const uint32_t *number) {
    uint16_t *tokens = memory_zalloc((count + 1) * sizeof *tokens);
    for (size_t i = 0; i < count; i++) {
        uint32_t known = number[characters[i]];
        tokens[i] = (uint16_t)((known ? known : number[TEXT_UNKNOWN]) - 1);
    }
    return tokens;
}

static int open_characters(const char *path, const uint32_t *characters, size_t count,
                           TextShape shape, DataSource *source, Error *err) {
    size_t training = count / 10 * 9 + count % 10 * 9 / 10;
    uint32_t *number = memory_zalloc(CODE_POINTS * sizeof *number);
    source->characters = memory_zalloc(CODE_POINTS * sizeof *source->characters);
    source->character_count =
        number_characters(characters, training, count, number, source->characters);
    int failed = set_vocabulary(source, source->character_count, path, shape, err);
    if (!failed)
        failed = set_windows(&source->train, tokens_of(characters, training, number), training,
                             path, shape, err);
    if (!failed)
        failed =
            set_windows(&source->test, tokens_of(characters + training, count - training, number),
                        count - training, path, shape, err);
    free(number);
    return failed;
}

int text_open_file(const char *path, TextShape shape, DataSource *source, Error *err) {
    uint8_t *text = NULL;
    uint32_t *characters = NULL;
    size_t bytes = 0, count = 0;
    snprintf(source->name, sizeof source->name, "text");
    int failed = read_text(path, &text, &bytes, err);
    if (!failed) failed = decode(path, text, bytes, &characters, &count, err);
    free(text);
    if (!failed) failed = open_characters(path, characters, count, shape, source, err);
    free(characters);
    return failed;
}

size_t text_character(const DataSource *source, size_t token, char utf8[TEXT_CHARACTER_ROOM]) {
    uint32_t c = token < source->character_count ? source->characters[token] : TEXT_UNKNOWN;
    size_t more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t LEAD[] = {0, 0xc0, 0xe0, 0xf0};
    for (size_t i = more; i > 0; i--, c >>= 6) utf8[i] = (char)(0x80 | (c & 0x3f));
    utf8[0] = (char)(LEAD[more] | c);
    utf8[more + 1] = '\0';
    return more + 1;
}

// ---- token files -------------------------------------------------------------------------------

enum { HEADER_NUMBERS = 256, HEADER_MAGIC = 20240520, HEADER_VERSION = 1 };

static char *token_path(const char *folder, const char *part) {
    return memory_format("%s/%s.bin", folder, part);
}

bool text_tokens_present(const char *folder) {
    bool present = false;
    for (int i = 0; i < 2; i++) {
        struct stat about;
        char *path = token_path(folder, i == 0 ? "train" : "val");
        present = present || stat(path, &about) == 0;
        free(path);
    }
    return present;
}

// Seeks past the file's header, if it has one. *bytes: in, the file's size; out, its tokens' size.
static int skip_header(FILE *file, const char *path, size_t *bytes, Error *err) {
    uint32_t header[HEADER_NUMBERS] = {0};
    bool whole = fread(header, sizeof header, 1, file) == 1;
    if (header[0] != HEADER_MAGIC) {
        rewind(file);
        return 0;
    }
    if (!whole || header[1] != HEADER_VERSION)
        return error_set(err, STATUS_USAGE, "%s: a header of version %u, or half of one", path,
                         header[1]);
    *bytes -= sizeof header;
    if (*bytes == (size_t)header[2] * sizeof(uint16_t)) return 0;
    return error_set(err, STATUS_USAGE, "%s: the header says %u token%s, %zu byte%s follow%s", path,
                     header[2], format_s(header[2]), *bytes, format_s(*bytes),
                     *bytes == 1 ? "s" : "");
}

// bytes: of the file.
static int read_tokens(FILE *file, const char *path, size_t bytes, uint16_t **tokens, size_t *count,
                       Error *err) {
    if (skip_header(file, path, &bytes, err) != 0) return -1;
    if (bytes % sizeof **tokens != 0 || bytes / sizeof **tokens > MAX_TOKENS)
        return error_set(err, STATUS_USAGE,
                         "%s: %zu byte%s of tokens: must be two for each, at most 8 GiB", path,
                         bytes, format_s(bytes));
    *count = bytes / sizeof **tokens;
    *tokens = memory_zalloc(bytes + 1);
    if (fread(*tokens, sizeof **tokens, *count, file) == *count) return 0;
    return error_set(err, STATUS_USAGE, "%s: became shorter while it was read", path);
}

static size_t largest_token(const Dataset *set) {
    size_t largest = 0;
    for (size_t i = 0; i < set->token_count; i++)
        if (set->tokens[i] > largest) largest = set->tokens[i];
    return largest;
}

static int open_part(const char *path, TextShape shape, Dataset *set, Error *err) {
    uint16_t *tokens = NULL;
    size_t count = 0, bytes = 0;
    FILE *file = file_open_stream(path, &bytes, err);
    if (!file) return -1;
    int failed = read_tokens(file, path, bytes, &tokens, &count, err);
    fclose(file);
    if (!failed) return set_windows(set, tokens, count, path, shape, err);
    free(tokens);
    return failed;
}

// Rejects test tokens that the training part lacks, unless --vocabulary includes them: token files
// have no token for unknown text.
static int check_tokens(const Dataset *set, const char *path, Error *err) {
    size_t largest = largest_token(set);
    if (largest < set->classes) return 0;
    return error_set(err, STATUS_USAGE, "%s: token %zu, the vocabulary is 0..%zu (--vocabulary)",
                     path, largest, set->classes - 1);
}

int text_open_tokens(const char *folder, TextShape shape, DataSource *source, Error *err) {
    char *train = token_path(folder, "train"), *val = token_path(folder, "val");
    snprintf(source->name, sizeof source->name, "tokens");
    int failed = open_part(train, shape, &source->train, err);
    if (!failed) failed = open_part(val, shape, &source->test, err);
    if (!failed)
        failed = set_vocabulary(source, largest_token(&source->train) + 1, train, shape, err);
    if (!failed) failed = check_tokens(&source->test, val, err);
    free(train);
    free(val);
    return failed;
}
