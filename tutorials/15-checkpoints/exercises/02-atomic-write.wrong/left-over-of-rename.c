/* rename failed, and the folder is not as it was */
int atomic_write(const char *path, WriteContent *write_content, void *context) {
    char temporary[256];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *file = fopen(temporary, "wb");
    if (!file) return -1;
    int failed = write_content(file, context) != 0;
    failed = fflush(file) != 0 || failed;
    failed = fsync(fileno(file)) != 0 || failed;
    failed = fclose(file) != 0 || failed;
    if (failed) {
        unlink(temporary);
        return -1;
    }
    return rename(temporary, path);
}
