/* messages.c: symptoms with a misleading error message, or with none: the cause is in the wrapper,
 * the devices, the first connection, an earlier job.
 */
#include "tutorials/symptoms/symptoms.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/nn/layers.h"
#include "ddp/distributed_data_parallel.h"
#include "dp/data_parallel.h"

static Module *wrap(SymptomRank *me, Module *model) {
    DdpConfig config = ddp_config_default();
    return must_get(distributed_data_parallel(model, me->group, &config, &me->err), &me->err);
}

static Tensor *forward_one(Module *module, Tape *tape) {
    Tensor *x = tape_input(tape, DTYPE_F32, 2, (size_t[]){1, 1}, &(float){1});
    return op_mean(tape, module_forward(module, tape, x));
}

// ---- attribute, ready-twice, in-place: the wrapper and its graph --------------------------------

static int count_named(const Module *module, const char *name) {
    int found = 0;
    for (int i = 0; i < module->child_count; i++)
        found += strcmp(module->children[i]->name, name) == 0;
    return found;
}

// The mistake: a layer is looked up in the wrapper, whose only child is the model.
static double attribute(SymptomRank *me) {
    Module *model = layer_sequential("Model");
    module_add(model, "head", layer_linear(me->device, 1, 1));
    Module *wrapper = wrap(me, model);
    int found = count_named(me->broken ? wrapper : wrapper->children[0], "head");
    module_close(wrapper);
    return found;
}

// A step with two losses. The mistake: each has a backward of its own, so every gradient is
// complete twice. The cure is one backward of their sum.
static double ready_twice(SymptomRank *me) {
    Module *wrapper = wrap(me, layer_linear(me->device, 1, 1));
    Tape *tape = tape_create(me->device, NULL);
    Tensor *loss = forward_one(wrapper, tape);
    if (me->broken) {
        must_do(tape_backward(tape, loss, &me->err), &me->err);
        tape_reset(tape);
        loss = forward_one(wrapper->children[0], tape);
    } else
        loss = op_add(tape, loss, forward_one(wrapper->children[0], tape));
    int done = tape_backward(tape, loss, &me->err) == 0 &&
               ddp_finish_backward(wrapper, NULL, &me->err) == 0;
    tape_close(tape);
    module_close(wrapper);
    return done;
}

// y = b (a x) with a = 1, b = 2, x = 1, so the gradient of a is b. The mistake: between forward and
// backward b is written (an optimizer's step, a second forward that broadcasts), and backward reads
// it. PyTorch counts versions and refuses; here the number is wrong.
static double in_place(SymptomRank *me) {
    Module *model = layer_sequential("Model");
    module_add(model, "a", layer_linear_without_bias(me->device, 1, 1));
    module_add(model, "b", layer_linear_without_bias(me->device, 1, 1));
    Tensor *a = module_parameter(model->children[0], 0),
           *b = module_parameter(model->children[1], 0);
    Tape *tape = tape_create(me->device, NULL);
    tensor_f32(a)[0] = 1;
    tensor_f32(b)[0] = 2;
    module_zero_grad(model);
    Tensor *loss = forward_one(model, tape);
    if (me->broken) tensor_f32(b)[0] = 5;
    must_do(tape_backward(tape, loss, &me->err), &me->err);
    double gradient = (double)a->grad[0];
    tape_close(tape);
    module_close(model);
    return gradient;
}

// ---- same-device, wrong-device, one-value: ranks, devices and rows ------------------------------

// The mistake: every rank opens the first device, as a program for one GPU does.
static double same_device(SymptomRank *me) {
    int32_t last = me->broken ? 0 : me->rank; // its local rank
    symptom_run(me, pg_all_reduce(&last, 1, PG_I32, PG_MAX));
    return last + 1;
}

// The mistake: the model lies on the second device, and device_ids begins with the first.
static double wrong_device(SymptomRank *me) {
    Device *devices[] = {lesson_device(0), lesson_device(1)};
    Module *model = layer_linear(devices[me->broken], 1, 1);
    Module *wrapper = data_parallel(model, devices, 2, &me->err);
    module_close(wrapper ? wrapper : model);
    device_close(devices[0]);
    device_close(devices[1]);
    return wrapper != NULL;
}

// The last batch of an epoch. The mistake: it leaves one row for this device, and one row has no
// variance. The cure is to drop it, or to choose another batch size.
static double one_value(SymptomRank *me) {
    size_t rows = me->broken ? 1 : 2;
    Module *norm = layer_batch_norm(me->device, 2);
    Tape *tape = tape_create(me->device, NULL);
    tape->training = true;
    module_forward(norm, tape,
                   tape_input(tape, DTYPE_F32, 2, (size_t[]){rows, 2}, (float[4]){1, 2, 3, 4}));
    int done = tape_error(tape, &me->err) == 0;
    tape_close(tape);
    module_close(norm);
    return done;
}

// ---- first-collective, kept-memory: outside of the program --------------------------------------

// The ranks have rendezvoused; a data connection is opened to the address that rank 0 sends. The
// mistake: rank 0 sends the address of another interface, on which no server listens.
static double first_collective(SymptomRank *me) {
    Error err = {0};
    StoreServer *server = NULL;
    int32_t where[2] = {me->broken ? 2 : 1, 0}; // 127.0.0.N, and the port
    char host[16];
    if (me->rank == 0) {
        server = must_get(store_serve("127.0.0.1", 0, "", &err), &err);
        where[1] = store_server_port(server);
    }
    symptom_run(me, pg_broadcast(where, 2, PG_I32, 0));
    snprintf(host, sizeof host, "127.0.0.%d", where[0]);
    Store *link = store_connect(host, where[1], "", me->broken ? 2.0 : TIMEOUT_S, &me->err);
    double opened = symptom_sum(me, link != NULL);
    if (link) store_close(link);
    if (server) store_server_close(server);
    return opened;
}

// A job of a launcher and a worker, whose launcher is killed (kill -9). The mistake: the worker
// gets no signal, and keeps its memory. The cure: prctl makes the system end it with its parent.
static double kept_memory(SymptomRank *me) {
    int alive[2]; // the worker holds the writing end as long as it lives
    CHECK(pipe(alive) == 0, "no pipe");
    pid_t launcher = fork();
    CHECK(launcher >= 0, "no process");
    if (launcher == 0) {
        if (fork() == 0 && !me->broken) prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (write(alive[1], &(pid_t){getpid()}, sizeof(pid_t)) < 0) _exit(1);
        pause();
        _exit(0);
    }
    close(alive[1]);
    pid_t pids[2] = {0};
    for (int i = 0; i < 2; i++)
        CHECK(read(alive[0], &pids[i], sizeof(pid_t)) == sizeof(pid_t), "no worker");
    kill(launcher, SIGKILL);
    waitpid(launcher, NULL, 0);
    struct pollfd ends = {.fd = alive[0], .events = POLLIN};
    int kept = poll(&ends, 1, me->broken ? 500 : 60000) == 0;
    for (int i = 0; kept && i < 2; i++)
        if (pids[i] != launcher) kill(pids[i], SIGKILL);
    close(alive[0]);
    return kept;
}

const Symptom SYMPTOMS_OF_MESSAGES[] = {
    {"attribute", "layers named head that were found, of 1", 1, 1, 1, attribute, 0},
    {"ready-twice", "completed steps, of 1", 1, 1, 2, ready_twice, 0},
    {"in-place", "the gradient of a in b (a x), 2 by hand", 2, 2, 1, in_place, 0},
    {"same-device", "devices used by two ranks", 2, 2, 2, same_device, 0},
    {"wrong-device", "wrapped models, of 1", 1, 1, 1, wrong_device, 0},
    {"one-value", "normalised batches, of 1", 1, 1, 1, one_value, 0},
    {"first-collective", "ranks with a link to rank 0, of 2", 2, 2, 2, first_collective, 0},
    {"kept-memory", "workers alive after their launcher", 0, 0, 1, kept_memory, 0},
    {0}};
