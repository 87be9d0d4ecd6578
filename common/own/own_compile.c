/* own_compile.c: compiles a user's C source to a shared object, against the public headers. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/format.h"
#include "common/base/shared_object.h"
#include "common/own/own_file.h"

enum { WORDS_MAX = 40, ERRORS_SHOWN = 2 };

extern char **environ;

typedef struct Command {
    char *words[WORDS_MAX + 1];
    int count;
    char compiler[PATH_MAX], include[PATH_MAX + 2], inner[PATH_MAX + 16];
} Command;

// Writes the folder of the public headers: beside the program's, of the build or of the
// installation.
static int find_headers(char folder[PATH_MAX], Error *err) {
    char own[PATH_MAX - 16], beside[PATH_MAX] = "";
    if (shared_object_own_folder(own, sizeof own))
        snprintf(beside, sizeof beside, "%s/../include", own);
    const char *const places[] = {beside, DDPC_BUILD_INCLUDE, DDPC_INSTALL_INCLUDE};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!*places[i] || !file_exists("%s/ddpc/common/base/error.h", places[i])) continue;
        snprintf(folder, PATH_MAX, "%s", places[i]);
        return 0;
    }
    return error_set(err, STATUS_USAGE, "the public headers are not found: neither %s nor %s",
                     DDPC_BUILD_INCLUDE, DDPC_INSTALL_INCLUDE);
}

static void add_word(Command *command, const char *word) {
    CHECK(command->count < WORDS_MAX, "no room for %s", word);
    command->words[command->count++] = (char *)(uintptr_t)word; // posix_spawn changes none
}

// -ffp-contract=off: as this project is compiled, so that the same expressions round alike.
static int make_command(Command *command, const char *path, const char *object, Error *err) {
    static const char *const flags[] = {"-std=gnu11",
                                        "-O2",
                                        "-g",
                                        "-fPIC",
                                        "-shared",
                                        "-Wl,-Bsymbolic",
                                        "-ffp-contract=off",
                                        "-Werror=implicit-function-declaration",
                                        "-Werror=int-conversion",
                                        "-Werror=incompatible-pointer-types"};
    char folder[PATH_MAX];
    const char *compiler = getenv("CC");
    if (find_headers(folder, err) != 0) return -1;
    snprintf(command->compiler, sizeof command->compiler, "%s",
             compiler && *compiler ? compiler : "cc");
    char *rest = command->compiler, *word;
    while ((word = strsep(&rest, " ")) && command->count < WORDS_MAX / 2)
        if (*word) add_word(command, word); // CC="ccache gcc"
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) add_word(command, flags[i]);
    snprintf(command->include, sizeof command->include, "-I%s", folder);
    snprintf(command->inner, sizeof command->inner, "-I%s/ddpc", folder);
    add_word(command, command->include);
    add_word(command, command->inner);
    add_word(command, "-o");
    add_word(command, object);
    add_word(command, path);
    add_word(command, "-lm");
    return 0;
}

// Appends the compiler's first lines with "error" to text.
static void read_errors(int fd, char *text, size_t capacity) {
    char line[400];
    int shown = 0;
    FILE *stream = fdopen(fd, "r");
    CHECK(stream, "no stream for a pipe: %s", strerror(errno));
    while (fgets(line, sizeof line, stream)) {
        line[strcspn(line, "\n")] = '\0';
        bool tells = strstr(line, "error:") || strstr(line, "cannot find") ||
                     strstr(line, "undefined reference");
        if (tells && shown++ < ERRORS_SHOWN)
            format_append(text, capacity, "%s%.220s", *text ? "; " : "", line);
    }
    fclose(stream);
}

// Runs the command and waits for it. Returns its exit status, or -1 if it cannot be started.
// errors: the first lines of its stderr.
static int run(const Command *command, char *errors, size_t capacity) {
    int ends[2], status = 0;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    int cause = posix_spawnp(&pid, command->words[0], &actions, NULL, command->words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    read_errors(ends[0], errors, capacity);
    if (cause != 0) {
        errno = cause;
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int own_compile(const char *path, const char *object, Error *err) {
    Command command = {.count = 0};
    char errors[512] = "", shown[600] = "";
    if (make_command(&command, path, object, err) != 0) return -1;
    int status = run(&command, errors, sizeof errors);
    if (status == 0) return 0;
    for (int i = 0; i < command.count; i++)
        format_append(shown, sizeof shown, "%s%s", i > 0 ? " " : "", command.words[i]);
    if (status < 0)
        return error_set(err, STATUS_USAGE,
                         "%s: the compiler %s cannot be run (%s) -- install "
                         "it, or name another: CC=clang",
                         path, command.words[0], strerror(errno));
    return error_set(err, STATUS_USAGE, "%s does not compile: %s -- the command: %s", path,
                     *errors ? errors : "the compiler did not say why", shown);
}
