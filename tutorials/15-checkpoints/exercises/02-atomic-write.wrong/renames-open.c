/* fclose failed, and the folder is not as it was */
int atomic_write(const char *path, WriteContent *write_content, void *context) {
    char temporary[256];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *file = fopen(temporary, "wb");
    if (!file) return -1;
    int failed = write_content(file, context) != 0;
    failed = fflush(file) != 0 || failed;
    failed = fsync(fileno(file)) != 0 || failed;
    if (!failed) failed = rename(temporary, path) != 0;
    failed = fclose(file) != 0 || failed;
    if (failed) unlink(temporary);
    return failed ? -1 : 0;
}
