/* waiting.c: symptoms of ranks that wait for others. No rank waits forever: a departed rank is
 * detected, ranks in different collectives get an error, every other wait times out.
 */
#include "tutorials/symptoms/symptoms.h"

#include <string.h>
#include <time.h>

#include "common/nn/layers.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/features/unused_parameters.h"

#define SHORT_TIMEOUT_S 2.0

// Runs a collective that may fail. Returns whether it succeeded.
static bool meets(SymptomRank *me) {
    double one = 1;
    return pg_run(me->group, pg_all_reduce(&one, 1, PG_F64, PG_SUM), &me->err) == 0;
}

// Rank 0 has three batches and rank 1 has two. The mistake: each rank continues while it has a
// batch. The cure counts in every round the ranks with a batch, as Join does for
// DistributedDataParallel.
static double uneven(SymptomRank *me) {
    int batches = me->rank == 0 ? 3 : 2, done = 0;
    for (;; done++) {
        double has = done < batches;
        if (!me->broken) has = symptom_sum(me, has);
        if (has == 0 || !meets(me)) return done;
    }
}

// Between two steps the model is tested. The mistake: the test runs a collective on rank 0
// only; the other ranks are in the next barrier.
static double rank_0_test(SymptomRank *me) {
    double correct = 150; // on each rank
    bool tests = me->rank == 0 || !me->broken;
    Collective sum = pg_all_reduce(&correct, 1, PG_F64, PG_SUM);
    if (tests && pg_run(me->group, sum, &me->err) != 0) return 0;
    pg_run(me->group, pg_barrier(), &me->err);
    return correct;
}

// ---- unused: a parameter that the loss does not depend on ---------------------------------------

static Tensor *first_head(Module *self, Tape *tape, Tensor *x) {
    return module_forward(self->children[0], tape, x);
}

// The mistake: the wrapper waits for the gradient of a head that was not used. Two steps.
static double unused(SymptomRank *me) {
    int steps = 0;
    Module *model = module_create("TwoHeads", first_head);
    module_add(model, "used", layer_linear(me->device, 1, 1));
    module_add(model, "unused", layer_linear(me->device, 1, 1));
    DdpConfig config = ddp_config_default();
    Module *wrapper =
        must_get(distributed_data_parallel(model, me->group, &config, &me->err), &me->err);
    if (!me->broken) ddp_find_unused_parameters(wrapper);
    Tape *tape = tape_create(me->device, NULL);
    for (; steps < 2; steps++) {
        Tensor *x = tape_input(tape, DTYPE_F32, 2, (size_t[]){1, 1}, &(float){1});
        Tensor *loss = op_mean(tape, module_forward(wrapper, tape, x));
        if (tape_error(tape, &me->err) != 0 || tape_backward(tape, loss, &me->err) != 0 ||
            ddp_finish_backward(wrapper, NULL, &me->err) != 0)
            break;
        tape_reset(tape);
    }
    tape_close(tape);
    module_close(wrapper);
    return steps;
}

// ---- dead-rank, timeout: a rank does not arrive -------------------------------------------------

// Rank 1 fails before the collective. The mistake: it leaves without an error message, and the
// others wait until their deadline. (A launcher detects the process's end and ends the others.)
static double dead_rank(SymptomRank *me) {
    Error cause = {0};
    if (me->rank == 1) {
        error_set(&cause, STATUS_FAILED, "my disk is full");
        if (!me->broken) pg_abort(me->group, &cause);
        return 0;
    }
    meets(me);
    return strstr(me->err.message, "my disk is full") != NULL;
}

// Rank 0 prepares data for three times the others' deadline. The mistake: they wait for rank 0 in a
// collective, whose deadline expires. The cure is a longer deadline, or to prepare before the
// rendezvous.
static double timeout(SymptomRank *me) {
    struct timespec preparation = {.tv_sec = (time_t)(3 * SHORT_TIMEOUT_S)};
    if (me->rank == 0 && me->broken) nanosleep(&preparation, NULL);
    return meets(me);
}

// ---- port, localhost: ranks that do not connect -------------------------------------------------

// Two jobs on one machine. The mistake: both were given the same port.
static double port(SymptomRank *me) {
    Error err = {0};
    StoreServer *first = must_get(store_serve("127.0.0.1", 0, "", &err), &err);
    int taken = me->broken ? store_server_port(first) : 0; // 0: the system chooses
    StoreServer *second = store_serve("127.0.0.1", taken, "", &me->err);
    int running = 1 + (second != NULL);
    store_server_close(first);
    if (second) store_server_close(second);
    return running;
}

// Two machines, on which localhost is 127.0.0.1 and 127.0.0.2. Rank 0 serves on the first. The
// mistake: rank 1 connects to its own localhost.
static double localhost(SymptomRank *me) {
    Error err = {0};
    StoreServer *server = must_get(store_serve("127.0.0.1", 0, "", &err), &err);
    Store *store = store_connect(me->broken ? "127.0.0.2" : "127.0.0.1", store_server_port(server),
                                 "", me->broken ? SHORT_TIMEOUT_S : TIMEOUT_S, &me->err);
    int found = store != NULL;
    if (store) store_close(store);
    store_server_close(server);
    return found;
}

const Symptom SYMPTOMS_OF_WAITING[] = {
    {"uneven", "rank 0's completed steps, of 3", 3, 3, 2, uneven, 0},
    {"rank-0-test", "of 300 samples, in the count that rank 0 has", 300, 300, 2, rank_0_test, 0},
    {"unused", "completed steps, of 2", 2, 2, 2, unused, 0},
    {"dead-rank", "whether rank 0 knows why rank 1 died", 1, 1, 2, dead_rank, 0},
    {"timeout", "completed collectives, of 1", 1, 1, 2, timeout, SHORT_TIMEOUT_S},
    {"port", "running jobs, of 2", 2, 2, 1, port, 0},
    {"localhost", "ranks that found rank 0, of 1", 1, 1, 1, localhost, 0},
    {0}};
