/* text.c: see text.h.
 *
 * A text is read whole, plain or gzipped, and decoded to code points before it is tokenized,
 * because the vocabulary is that of the whole training part. A token file's header must match the
 * file's size, which is checked before memory is allocated.
 */
#include "common/data/text.h"

#include <string.h>

#include "common/base/file.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/data/formats.h"

enum { CODE_POINTS = 0x110000, MAX_VOCABULARY = 1 << 16 };
static const size_t MAX_TEXT = (size_t)1 << 28;   // bytes of a text file, unpacked
static const size_t MAX_TOKENS = (size_t)1 << 32; // of a token file: 8 GiB

// ---- windows -----------------------------------------------------------------------------------

// Divides the set's tokens into windows.
static int set_windows(Dataset *set, size_t context, Error *err) {
    CHECK(context > 0, "windows of %zu tokens", context);
    memcpy(set->shape, (size_t[]){context, 1, 1}, sizeof set->shape);
    if (set->token_count <= context)
        return error_set(err, STATUS_USAGE,
                         "a part of it has %zu token%s; a sample is %zu and their successors "
                         "(--context)",
                         set->token_count, format_s(set->token_count), context);
    set->count = (set->token_count - 1) / context;
    return 0;
}

// Sets the vocabulary's size. found: how many distinct tokens the data has; wanted: --vocabulary.
static int set_vocabulary(DataSource *source, size_t found, size_t wanted, Error *err) {
    if (found > MAX_VOCABULARY)
        return error_set(err, STATUS_USAGE, "more than %d different characters", MAX_VOCABULARY);
    if (wanted > 0 && wanted < found)
        return error_set(err, STATUS_USAGE, "has %zu different tokens, --vocabulary is %zu", found,
                         wanted);
    source->train.classes = source->test.classes = wanted ? wanted : found;
    return 0;
}

// ---- characters --------------------------------------------------------------------------------

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
static int decode(const uint8_t *text, size_t bytes, uint32_t **characters, size_t *count,
                  Error *err) {
    *characters = memory_zalloc((bytes + 1) * sizeof **characters);
    for (size_t at = 0; at < bytes;) {
        size_t begin = at;
        if (!next_character(text, bytes, &at, &(*characters)[(*count)++]))
            return error_set(err, STATUS_USAGE, "byte %zu is not UTF-8", begin);
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

static int set_characters(Dataset *set, const uint32_t *characters, size_t count,
                          const uint32_t *number, size_t context, Error *err) {
    set->token_count = count;
    set->tokens = memory_zalloc((count + 1) * sizeof *set->tokens);
    for (size_t i = 0; i < count; i++) {
        uint32_t known = number[characters[i]];
        set->tokens[i] = (uint16_t)((known ? known : number[TEXT_UNKNOWN]) - 1);
    }
    return set_windows(set, context, err);
}

static int open_characters(const uint32_t *characters, size_t count, const DataOptions *options,
                           DataSource *source, Error *err) {
    const size_t training = count / 10 * 9 + count % 10 * 9 / 10, context = options->context;
    uint32_t *number = memory_zalloc(CODE_POINTS * sizeof *number);
    source->characters = memory_zalloc(CODE_POINTS * sizeof *source->characters);
    source->character_count =
        number_characters(characters, training, count, number, source->characters);
    int failed = set_vocabulary(source, source->character_count, options->vocabulary, err);
    if (!failed)
        failed = set_characters(&source->train, characters, training, number, context, err);
    if (!failed)
        failed = set_characters(&source->test, characters + training, count - training, number,
                                context, err);
    free(number);
    return failed;
}

int text_open_file(const char *path, const DataOptions *options, DataSource *source, Error *err) {
    uint8_t *text = NULL;
    uint32_t *characters = NULL;
    size_t bytes = 0, count = 0;
    gzFile file = gz_open(path, NULL, err);
    if (!file) return -1;
    int failed = gz_read_all(file, MAX_TEXT + 1, &text, &bytes, err);
    if (!failed && bytes <= MAX_TEXT) failed = gz_check_end(file, path, bytes, err);
    gzclose(file);
    if (!failed && bytes > MAX_TEXT)
        failed = error_set(err, STATUS_USAGE, "more than %zu MiB of text; make token files of it",
                           MAX_TEXT >> 20);
    if (!failed) failed = decode(text, bytes, &characters, &count, err);
    free(text);
    if (!failed) failed = open_characters(characters, count, options, source, err);
    free(characters);
    return failed ? error_prefix(err, "%s", path) : 0;
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

bool text_tokens_present(const char *folder) {
    return file_exists("%s/train.bin", folder) || file_exists("%s/val.bin", folder);
}

// Seeks past the file's header, if it has one. *bytes: in, the file's size; out, its tokens' size.
static int skip_header(FILE *file, size_t *bytes, Error *err) {
    uint32_t header[HEADER_NUMBERS] = {0};
    bool whole = fread(header, sizeof header, 1, file) == 1;
    if (header[0] != HEADER_MAGIC) {
        rewind(file);
        return 0;
    }
    if (!whole || header[1] != HEADER_VERSION)
        return error_set(err, STATUS_USAGE, "a header of version %u, or half of one", header[1]);
    *bytes -= sizeof header;
    if (*bytes == (size_t)header[2] * sizeof(uint16_t)) return 0;
    return error_set(err, STATUS_USAGE, "the header says %u token%s, %zu byte%s follow%s",
                     header[2], format_s(header[2]), *bytes, format_s(*bytes),
                     *bytes == 1 ? "s" : "");
}

// Reads the tokens of a file of `bytes`.
static int read_tokens(FILE *file, size_t bytes, Dataset *set, Error *err) {
    if (skip_header(file, &bytes, err) != 0) return -1;
    const size_t count = bytes / sizeof *set->tokens;
    if (bytes % sizeof *set->tokens != 0 || count > MAX_TOKENS)
        return error_set(err, STATUS_USAGE,
                         "%zu byte%s of tokens: must be two for each, at most 8 GiB", bytes,
                         format_s(bytes));
    set->tokens = memory_zalloc(bytes + 1);
    set->token_count = count;
    if (fread(set->tokens, sizeof *set->tokens, count, file) == count) return 0;
    return error_set(err, STATUS_USAGE, "became shorter while it was read");
}

static int open_part(const char *folder, const char *part, size_t context, Dataset *set,
                     Error *err) {
    size_t bytes = 0;
    int failed = -1;
    char *path = memory_format("%s/%s.bin", folder, part);
    FILE *file = file_open_stream(path, &bytes, err);
    if (file) {
        failed = read_tokens(file, bytes, set, err);
        fclose(file);
        if (!failed) failed = set_windows(set, context, err);
        if (failed) error_prefix(err, "%s", path);
    }
    free(path);
    return failed;
}

static size_t largest_token(const Dataset *set) {
    size_t largest = 0;
    for (size_t i = 0; i < set->token_count; i++)
        if (set->tokens[i] > largest) largest = set->tokens[i];
    return largest;
}

int text_open_tokens(const char *folder, const DataOptions *options, DataSource *source,
                     Error *err) {
    Dataset *train = &source->train, *test = &source->test;
    if (open_part(folder, "train", options->context, train, err) != 0 ||
        open_part(folder, "val", options->context, test, err) != 0)
        return -1;
    if (set_vocabulary(source, largest_token(train) + 1, options->vocabulary, err) != 0)
        return error_prefix(err, "%s/train.bin", folder);
    // Token files have no token for unknown text.
    const size_t largest = largest_token(test);
    if (largest < test->classes) return 0;
    return error_set(err, STATUS_USAGE,
                     "%s/val.bin: token %zu, the vocabulary is 0..%zu (--vocabulary)", folder,
                     largest, test->classes - 1);
}
