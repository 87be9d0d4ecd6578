/* fuzz_flight.c: flight records of two ranks: [u16 n, little-endian][n bytes: first record][second
 * record].
 *
 * For any input the analysis ends, and each line that it prints is about a group.
 */
#include "ddp/group/flight_analysis.h"
#include "tests/fuzz/fuzz.h"

enum { FILES = 2 };
static const char *const NAMES[FILES] = {"flight_world_rank_0.json", "flight_world_rank_1.json"};

static void check_lines(const char *text) {
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        CHECK(strncmp(line, "group ", 6) == 0, "a line: %.60s", line);
        CHECK(strchr(line, '\n'), "a line without an end: %.60s", line);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t first = data[0] + 256u * data[1], bytes = 0;
    data += 2, size -= 2;
    if (first > size) first = size;
    char one_path[64], other_path[64], folder[32], *text = NULL;
    int one = fuzz_file(data, first, one_path);
    int other = fuzz_file(data + first, size - first, other_path);
    fuzz_folder(folder, NAMES, (const char *[]){one_path, other_path}, FILES);

    Error err = {0};
    bool departed;
    FILE *out = open_memstream(&text, &bytes);
    CHECK(out, "no memory");
    int status = flight_analyse(folder, out, &departed, &err);
    fclose(out);
    if (status != 0) fuzz_check_error(&err);
    check_lines(text);
    free(text);
    fuzz_folder_remove(folder, NAMES, FILES);
    close(one);
    close(other);
    return 0;
}
