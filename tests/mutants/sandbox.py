"""sandbox.py: runs tests of a CTest build apart from each other and from the machine.

Each test gets pid, network, IPC and mount namespaces of its own, an empty /dev/shm, a /dev whose entries
cannot be removed or changed (a mutant removed /dev/null, as root), and an overlay of the tree: a mutant that
leaves processes, segments or files behind disturbs no other test. Where glibc's
debugging heap is installed, a write past the end of an allocation ends the process at its free.
"""
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

# The test is not exec'd: process 1 of a namespace would ignore the signals that a test dies from.
INSIDE = r'''
set -e
mount --rbind /dev /dev && mount -o remount,bind,ro /dev || :
mount -t tmpfs -o size=2g none /dev/shm
ip link set lo up
mount -t tmpfs none "$SCRATCH"
mkdir "$SCRATCH/upper" "$SCRATCH/work" "$SCRATCH/tmp"
mount -t overlay overlay -o "lowerdir=$TREE,upperdir=$SCRATCH/upper,workdir=$SCRATCH/work" "$TREE"
export TMPDIR="$SCRATCH/tmp"
cd "$1"; limit=$2; shift 2
set +e
timeout -k 3 "$limit" "$@"
exit $?
'''
NAMESPACES = ['unshare', '-Urmnipf', '--kill-child', '--mount-proc', 'sh', '-c', INSIDE, 'sh']
HEAP = [str(x) for x in Path('/lib').glob('*/libc_malloc_debug.so.0')]
CHECKED_HEAP = dict(LD_PRELOAD=HEAP[0], GLIBC_TUNABLES='glibc.malloc.check=3') if len(HEAP) == 1 else {}
LEFT_OUT = re.compile('lint')  # labels; also slow, but for all wrong versions of an exercise
OF_GRADERS = re.compile('selftest|grade')


def read_tests(build, graders):
    """Name -> command, environment and folder of each test that may judge a mutant. graders: also those that
    judge the tutorials' graders (grades)."""
    shown = subprocess.run(['ctest', '--test-dir', build, '--show-only=json-v1'],
                           capture_output=True, text=True, check=True).stdout
    tests = {}
    for test in json.loads(shown)['tests']:
        p = {x['name']: x['value'] for x in test['properties']}
        labels = p.get('LABELS', [])
        grades = any(OF_GRADERS.fullmatch(x) for x in labels)
        if 'command' not in test or any(LEFT_OUT.fullmatch(x) for x in labels) or grades and not graders \
                or 'slow' in labels and 'grade' not in labels:
            continue
        tests[test['name']] = dict(
            grades=grades,
            command=test['command'], folder=p.get('WORKING_DIRECTORY', build),
            environment=dict(x.split('=', 1) for x in p.get('ENVIRONMENT', [])),
            timeout=p.get('TIMEOUT', 120), skip=p.get('SKIP_RETURN_CODE'))
    return tests


def run_test(test, tree, limit, variables):
    """Returns ('passed', 'failed', 'skipped' or 'hangs', seconds, end of the output)."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith('DDPC_MUTANT')}
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as log:
        environment.update(CHECKED_HEAP | test['environment'], TREE=tree, SCRATCH=scratch, **variables)
        command = NAMESPACES + [test['folder'], str(limit)] + test['command']
        begin = time.monotonic()
        child = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                 env=environment, start_new_session=True)
        try:
            status = child.wait(limit + 20)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            status = 124
        seconds = time.monotonic() - begin
        log.seek(max(0, log.seek(0, os.SEEK_END) - 3000))
        text = log.read().decode(errors='replace')
    if status == test['skip']:
        return 'skipped', seconds, text
    if status in (124, 137):
        return 'hangs', seconds, text
    return ('passed' if status == 0 else 'failed'), seconds, text


def works():
    """Whether this machine allows the namespaces."""
    with tempfile.TemporaryDirectory() as tree:
        test = dict(command=['true'], folder='/', environment={}, skip=None)
        return run_test(test, tree, 10, {})[0] == 'passed'
