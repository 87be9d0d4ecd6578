/* The temporary file has another name each time. */
#include <stdlib.h>
int atomic_write(const char *path, WriteContent *write_content, void *context) {
    char temporary[256];
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int number = mkstemp(temporary);
    if (number < 0) return -1;
    FILE *file = fdopen(number, "wb");
    if (!file) {
        close(number);
        unlink(temporary);
        return -1;
    }
    if (write_content(file, context) || fflush(file) || fsync(number)) {
        fclose(file);
        unlink(temporary);
        return -1;
    }
    if (fclose(file) || rename(temporary, path)) {
        unlink(temporary);
        return -1;
    }
    return 0;
}
