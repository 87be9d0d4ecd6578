/* tutorial_host.c: runs a step's program that tutorials/run has compiled to call student functions.
 *
 *   tutorial_host PROGRAM.so [STUDENT.so FUNCTION]... -- [OPTION]...
 *
 * Each STUDENT.so is loaded before the program: the program's calls of FUNCTION find it there. The
 * student's files are compiled with -finstrument-functions: the compiler calls the two functions
 * below at each entry and exit, so calls are counted when they happen.
 *
 * TUTORIAL_CALLS names a file to which each rank appends, at its end, a line for each function:
 *
 *     called FUNCTION COUNT           how often it was entered
 *     inside FUNCTION SIGNAL RANK     a signal ended the process while the function ran
 *
 * The second line is written by a signal handler: it calls async-signal-safe functions only.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/error.h"
#include "common/base/sync.h"

enum { MOST_FUNCTIONS = 16, LINE_MAX_BYTES = 160, ALTERNATE_STACK_BYTES = 64 << 10 };

typedef struct OwnFunction {
    const char *name;
    void *address;
    SyncWord calls, inside; // number of entries; entries without an exit
} OwnFunction;

// Per process, because the compiler's calls and a signal handler carry no context.
static struct {
    OwnFunction functions[MOST_FUNCTIONS];
    int count;
    const char *calls_file, *rank;
} host;

// ---- counting -----------------------------------------------------------------------------------

static void change(SyncWord *word, uint32_t by) {
    uint32_t now;
    do now = sync_load(word);
    while (!sync_claim(word, now, now + by));
}

#define HOOK __attribute__((visibility("default"), no_instrument_function))
HOOK void __cyg_profile_func_enter(void *function, void *caller);
HOOK void __cyg_profile_func_exit(void *function, void *caller);

static OwnFunction *find_function(const void *address) {
    for (int i = 0; i < host.count; i++)
        if (host.functions[i].address == address) return &host.functions[i];
    return NULL;
}

void __cyg_profile_func_enter(void *function, void *caller) {
    OwnFunction *own = find_function(function);
    (void)caller;
    if (!own) return;
    change(&own->calls, 1);
    change(&own->inside, 1);
}

void __cyg_profile_func_exit(void *function, void *caller) {
    OwnFunction *own = find_function(function);
    (void)caller;
    if (own) change(&own->inside, UINT32_MAX); // minus 1
}

// ---- the file -----------------------------------------------------------------------------------

static void append(const char *line, size_t length) {
    int file = open(host.calls_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) return;
    if (write(file, line, length) < 0) _exit(STATUS_FAILED);
    close(file);
}

static void write_counts(void) {
    char line[LINE_MAX_BYTES];
    for (int i = 0; i < host.count; i++) {
        int length = snprintf(line, sizeof line, "called %s %u\n", host.functions[i].name,
                              sync_load(&host.functions[i].calls));
        append(line, (size_t)length);
    }
}

static size_t add(char *line, size_t at, const char *text) {
    while (*text && at < LINE_MAX_BYTES - 1) line[at++] = *text++;
    return at;
}

static void tell_and_end(int number) {
    const char digits[] = {(char)('0' + number / 10), (char)('0' + number % 10), 0};
    for (int i = 0; i < host.count; i++) {
        char line[LINE_MAX_BYTES];
        if (sync_load(&host.functions[i].inside) == 0) continue;
        size_t length = add(line, 0, "inside ");
        length = add(line, length, host.functions[i].name);
        length = add(line, add(line, length, " "), digits);
        length = add(line, add(line, length, " "), host.rank);
        append(line, add(line, length, "\n"));
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_signals(void) {
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM};
    stack_t stack = {.ss_sp = malloc(ALTERNATE_STACK_BYTES), .ss_size = ALTERNATE_STACK_BYTES};
    struct sigaction action = {.sa_handler = tell_and_end, .sa_flags = SA_ONSTACK};
    if (stack.ss_sp) sigaltstack(&stack, NULL);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
}

// ---- loading ------------------------------------------------------------------------------------

static void *load(const char *path) {
    void *object = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (object) return object;
    Error err = {0};
    error_set(&err, STATUS_USAGE, "%s", dlerror());
    error_exit(&err);
}

static void load_function(const char *path, const char *name) {
    Error err = {0};
    OwnFunction *own = &host.functions[host.count];
    if (host.count == MOST_FUNCTIONS)
        error_set(&err, STATUS_USAGE, "more than %d functions", host.count);
    own->name = name;
    own->address = dlsym(load(path), name);
    if (!own->address) error_set(&err, STATUS_USAGE, "%s is not defined in your file", name);
    if (err.status != 0) error_exit(&err);
    host.count++;
}

typedef int Main(int argc, char **argv);

int main(int argc, char **argv) {
    Error err = {0};
    int next = 2;
    const char *rank = getenv("RANK");
    host.calls_file = getenv("TUTORIAL_CALLS");
    host.rank = rank ? rank : "0";
    while (next + 1 < argc && strcmp(argv[next], "--") != 0) {
        load_function(argv[next], argv[next + 1]);
        next += 2;
    }
    if (!host.calls_file || next >= argc || strcmp(argv[next], "--") != 0) {
        error_set(&err, STATUS_USAGE, "this is called by tutorials/run");
        error_exit(&err);
    }
    // POSIX's way to take a function from dlsym without a cast from an object's pointer
    Main *program_main;
    *(void **)&program_main = dlsym(load(argv[1]), "step_main");
    if (!program_main) {
        error_set(&err, STATUS_USAGE, "%s has no step_main", argv[1]);
        error_exit(&err);
    }
    watch_signals();
    atexit(write_counts);
    argv[next] = argv[0];
    return program_main(argc - next, argv + next);
}
