/* player.c: the judge's process and the student's.
 *
 * Both run the same check. At the first call of the student's function the judge forks the player,
 * which confines itself (box.h), loads the student's file and makes the calls. Each call's
 * results go into the transcript, a pipe. The judge makes no call: it reads the results
 * from the transcript and continues judging. So the student's code can spoil its
 * answers and nothing else: the verdict's pipe is open in the judge only.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tutorials/grading/box.h"
#include "tutorials/grading/grader.h"

typedef enum FrameKind { FRAME_OUTPUT = 0x4f555431, FRAME_MISS, FRAME_END } FrameKind;

typedef struct Frame {
    uint32_t kind;
    uint32_t bytes;
} Frame;

// Writes to a pipe. No signal handler interrupts it, so it writes all, or its reader has ended.
static void write_all(int pipe, const void *from, size_t bytes) {
    if (write(pipe, from, bytes) != (ssize_t)bytes) _exit(1);
}

// ---- the transcript, buffered at both ends ------------------------------------------------------

static struct {
    char bytes[4096];
    size_t begin, end;
} buffer;

static void flush(const Grade *grade) {
    write_all(grade->transcript, buffer.bytes, buffer.end);
    buffer.end = 0;
}

static void put(const Grade *grade, const void *data, size_t bytes) {
    if (bytes > sizeof buffer.bytes - buffer.end) flush(grade);
    if (bytes > sizeof buffer.bytes) {
        write_all(grade->transcript, data, bytes);
    } else if (bytes > 0) {
        memcpy(buffer.bytes + buffer.end, data, bytes);
        buffer.end += bytes;
    }
}

// Reads bytes from the transcript. Returns whether all were read.
static bool take(const Grade *grade, void *to, size_t bytes) {
    char *next = to;
    while (bytes > 0) {
        if (buffer.begin == buffer.end) {
            ssize_t got = read(grade->transcript, buffer.bytes, sizeof buffer.bytes);
            if (got <= 0) return false;
            buffer.begin = 0;
            buffer.end = (size_t)got;
        }
        size_t now = buffer.end - buffer.begin < bytes ? buffer.end - buffer.begin : bytes;
        memcpy(next, buffer.bytes + buffer.begin, now);
        buffer.begin += now;
        next += now;
        bytes -= now;
    }
    return true;
}

static void put_frame(const Grade *grade, FrameKind kind, const void *data, size_t bytes) {
    Frame frame = {kind, (uint32_t)bytes};
    put(grade, &frame, sizeof frame);
    put(grade, data, bytes);
}

// ---- the judge reads ----------------------------------------------------------------------------

static void give_verdict(const Grade *grade, const char *sentence) __attribute__((noreturn));
static void give_verdict(const Grade *grade, const char *sentence) {
    fflush(NULL);
    write_all(grade->verdict, sentence, strlen(sentence) + 1);
    _exit(0);
}

static void miss_by_end(Grade *grade) __attribute__((noreturn));
static void miss_by_end(Grade *grade) {
    char sentence[SENTENCE_MAX];
    int status;
    const pid_t ended = waitpid(grade->player, &status, 0);
    CHECK(ended == grade->player, "cannot wait for the player");
    say_how_it_ended(sentence, status);
    give_verdict(grade, sentence);
}

// Reads the next frame, which must be of this kind and length.
static void take_frame(Grade *grade, FrameKind kind, void *data, size_t bytes) {
    Frame frame;
    char sentence[SENTENCE_MAX] = "";
    if (!take(grade, &frame, sizeof frame)) miss_by_end(grade);
    if (frame.kind == FRAME_MISS && frame.bytes < sizeof sentence) {
        if (!take(grade, sentence, frame.bytes)) miss_by_end(grade);
        if (sentence[0]) give_verdict(grade, sentence); // an empty one would be a pass
    }
    if (frame.kind != (uint32_t)kind || frame.bytes != bytes)
        give_verdict(grade, "It wrote into a file descriptor that is not its own.");
    if (!take(grade, data, bytes)) miss_by_end(grade);
}

// ---- the student's process ----------------------------------------------------------------------

void grade_become(Grade *grade, Role role) {
    grade->role = role;
    close(grade->verdict);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 1); // ranks map each other's memory through /proc
}

bool grade_plays(Grade *grade) {
    int ends[2];
    if (grade->role != ROLE_JUDGE) return true;
    if (grade->player) return false;
    int failed = pipe2(ends, O_CLOEXEC);
    CHECK(failed == 0, "no pipe for a transcript");
    fflush(NULL);
    grade->player = fork();
    CHECK(grade->player >= 0, "no process for a student's file");
    const bool plays = grade->player == 0;
    if (plays) grade_become(grade, ROLE_PLAYER);
    grade->transcript = ends[plays ? 1 : 0];
    close(ends[plays ? 0 : 1]);
    return plays;
}

void grade_out(Grade *grade, void *output, size_t bytes) {
    if (grade->role == ROLE_PLAYER) check_fences(grade);
    if (grade->role == ROLE_PLAYER) put_frame(grade, FRAME_OUTPUT, output, bytes);
    if (grade->role == ROLE_JUDGE) take_frame(grade, FRAME_OUTPUT, output, bytes);
}

// Confines this process (box_enter), then loads the student's file.
static void load(Grade *grade) {
    CHECK(grade->role != ROLE_JUDGE, "the judge must not load a student's file");
    box_enter(grade->file, grade->room, 2 * CHECK_SECONDS);
    signal(SIGSEGV, SIG_DFL); // a sanitizer's handler would turn it into an exit
    grade->library = dlopen(grade->file, RTLD_NOW | RTLD_LOCAL);
    if (!grade->library) grade_miss(grade, "Your file cannot be loaded: %.400s", dlerror());
}

GradeFunction *grade_function(Grade *grade, const char *name) {
    // POSIX allows this copy; C forbids a cast between function and object pointers.
    union {
        void *data;
        GradeFunction *function;
    } symbol;
    if (!grade->library) load(grade);
    grade->blocks_now = watch_blocks();
    if (++grade->calls == 2) grade->blocks = grade->blocks_now;
    symbol.data = dlsym(grade->library, name);
    if (!symbol.data) grade_miss(grade, "Your file does not define the function %s.", name);
    return symbol.function;
}

// Memory kept from the first call is no leak; an additional block with each call is.
void check_blocks(Grade *grade) {
    const long more = grade->blocks_now - grade->blocks;
    GRADE_EXPECT(grade, !grade->last || grade->calls < 4 || more < (long)grade->calls - 2,
                 "In %zu calls %ld blocks of memory were allocated and never freed: a training of "
                 "a million steps runs out of memory.",
                 grade->calls - 2, more);
}

// ---- the end ------------------------------------------------------------------------------------

void grade_miss(Grade *grade, const char *format, ...) {
    char sentence[SENTENCE_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    fflush(NULL);
    if (grade->role == ROLE_RANK) seat_miss(grade->seat, sentence);
    if (grade->role == ROLE_JUDGE) give_verdict(grade, sentence);
    put_frame(grade, FRAME_MISS, sentence, strlen(sentence));
    flush(grade);
    _exit(0);
}

void grade_end(Grade *grade) {
    fflush(NULL);
    if (grade->role == ROLE_PLAYER) {
        check_blocks(grade);
        put_frame(grade, FRAME_END, "", 0);
        flush(grade);
        _exit(0);
    }
    if (grade->player) take_frame(grade, FRAME_END, NULL, 0);
    give_verdict(grade, "");
}

const char *grade_room(const Grade *grade) {
    return grade->room;
}

uint64_t grade_ulps(float a, float b) {
    int32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    int64_t place_x = x < 0 ? (int64_t)INT32_MIN - x : x,
            place_y = y < 0 ? (int64_t)INT32_MIN - y : y;
    return (uint64_t)(place_x < place_y ? place_y - place_x : place_x - place_y);
}
