/* The disk was full, and that went unnoticed: fflush and fclose say whether the buffer */
int atomic_write(const char *path, WriteContent *write_content, void *context) {
    char temporary[256];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *file = fopen(temporary, "wb");
    if (!file) return -1;
    int failed = write_content(file, context) != 0;
    fflush(file);
    failed = fsync(fileno(file)) != 0 || failed;
    fclose(file);
    if (!failed && rename(temporary, path) == 0) return 0;
    unlink(temporary);
    return -1;
}
