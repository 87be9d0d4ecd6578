/* tutorial_keeper.c: runs a command, and after its end kills the processes that it has left behind.
 * tutorials/run and tutorials/capstone use it where bubblewrap, which does the same, does not work.
 *
 *   tutorial_keeper COMMAND...     exit status: the command's; 128 + a signal
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/error.h"
#include "tutorials/grading/leftovers.h"

int main(int argc, char **argv) {
    Error err = {0};
    int status;
    if (argc < 2) {
        error_set(&err, STATUS_USAGE, "this is called by tutorials/run");
        error_exit(&err);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t command = fork();
    if (command == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvp(argv[1], argv + 1);
    }
    if (command <= 0) {
        error_set(&err, STATUS_USAGE, "%s: %s", argv[1], strerror(errno));
        error_exit(&err);
    }
    const pid_t ended = waitpid(command, &status, 0);
    CHECK(ended == command, "cannot wait for %s", argv[1]);
    end_leftovers();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
