/* corpus.c: main of corpus_*: runs a fuzz target over files instead of libFuzzer's generated
 * inputs.
 *
 * The arguments are files and folders of files. No input at all is a failure.
 */
#include <dirent.h>

#include "tests/fuzz/fuzz.h"

static void run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    CHECK(file, "cannot open %s", path);
    uint8_t *data = NULL;
    size_t size = 0, room = 0;
    do {
        room = room ? 2 * room : 4096;
        data = memory_grow(data, room, 1);
        size += fread(data + size, 1, room - size, file);
    } while (size == room);
    fclose(file);
    // A buffer of exactly the input's size, so that AddressSanitizer reports a read beyond it.
    uint8_t *exact = malloc(size ? size : 1);
    CHECK(exact, "no memory for %zu bytes", size);
    memcpy(exact, data, size);
    free(data);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static size_t run_all(const char *path) {
    DIR *entries = opendir(path);
    size_t count = 0;
    if (!entries) {
        run_file(path);
        return 1;
    }
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (entry->d_name[0] == '.') continue;
        char *below = memory_format("%s/%s", path, entry->d_name);
        run_file(below);
        free(below);
        count++;
    }
    closedir(entries);
    return count;
}

int main(int argc, char **argv) {
    size_t count = 0;
    for (int i = 1; i < argc; i++) count += run_all(argv[i]);
    printf("%zu inputs\n", count);
    return count > 0 ? 0 : 1;
}
