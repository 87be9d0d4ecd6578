/* 01-issue-step.grade.c: the issued calls become a happens-before graph, which stands for all
 * orders. Two calls overlap if the graph does not order them.
 */
#include "tutorials/25-gpus/exercises/01-issue-step.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_25_01;

enum { MOST_CALLS = 512, RECORD = 100, WAIT, SYNCHRONIZE };

typedef struct Call {
    int kind; // an Operation, or one of the above
    int layer, event;
    StreamName stream;
} Call;

typedef struct Plan {
    Grade *grade;
    Call calls[MOST_CALLS];
    int count, events, layers;
} Plan;

static void add(Plan *plan, Call call) {
    GRADE_EXPECT(plan->grade, plan->count < MOST_CALLS, "More than %d calls for one step.",
                 MOST_CALLS);
    plan->calls[plan->count++] = call;
}

static void launch(void *context, StreamName stream, Operation operation, int layer) {
    const Plan *plan = context;
    bool of_layer = operation == BACKWARD || operation == ALL_REDUCE;
    GRADE_EXPECT(
        plan->grade, of_layer || layer == 0,
        "The optimizer or the copy was launched with layer %d: there is one of each, for all "
        "layers.",
        layer);
    GRADE_EXPECT(plan->grade, layer >= 0 && layer < plan->layers,
                 "There are the layers 0 to %d, and something was launched for layer %d.",
                 plan->layers - 1, layer);
    add(context, (Call){.kind = (int)operation, .layer = layer, .stream = stream});
}
static int record(void *context, StreamName stream) {
    Plan *plan = context;
    add(plan, (Call){.kind = RECORD, .event = plan->events, .stream = stream});
    return plan->events++;
}
static void wait_for(void *context, StreamName stream, int event) {
    Plan *plan = context;
    GRADE_EXPECT(plan->grade, event >= 0 && event < plan->events,
                 "A stream waits for event %d, which was never recorded.", event);
    add(plan, (Call){.kind = WAIT, .event = event, .stream = stream});
}
static void synchronize(void *context, StreamName stream) {
    add(context, (Call){.kind = SYNCHRONIZE, .stream = stream});
}

static Plan *issue(Grade *grade, int layers) {
    static Plan plan;
    plan = (Plan){.grade = grade, .layers = layers};
    Streams gpu = {&plan, launch, record, wait_for, synchronize};
    GRADE_RUN(grade, issue_step, &gpu, layers);
    GRADE_OUT(grade, plan);
    plan.grade = grade; // the player's grade has the same address
    return &plan;
}

// Returns the index of a call, which must occur once.
static int find(const Plan *plan, Operation operation, int layer, const char *name) {
    int found = -1;
    for (int i = 0; i < plan->count; i++) {
        if (plan->calls[i].kind != (int)operation || plan->calls[i].layer != layer) continue;
        GRADE_EXPECT(plan->grade, found < 0, "%s of layer %d was launched twice.", name, layer);
        found = i;
    }
    GRADE_EXPECT(plan->grade, found >= 0, "%s of layer %d was never launched.", name, layer);
    return found;
}

// Returns whether call a happens before call b.
static bool is_after(const Plan *plan, int a, int b) {
    bool after[MOST_CALLS] = {false};
    after[a] = true;
    for (int i = a + 1; i <= b; i++)
        for (int k = a; k < i && !after[i]; k++) {
            const Call *before = &plan->calls[k], *call = &plan->calls[i];
            bool marked = call->kind == WAIT && before->kind == RECORD;
            after[i] = after[k] && (before->kind == SYNCHRONIZE || before->stream == call->stream ||
                                    (marked && before->event == call->event));
        }
    return after[b];
}

static void all_calls(Grade *grade) {
    const Plan *plan = issue(grade, 4);
    int before = -1;
    for (int layer = 3; layer >= 0; layer--) {
        int backward = find(plan, BACKWARD, layer, "Backward");
        GRADE_EXPECT(grade, plan->calls[backward].stream == COMPUTE,
                     "Backward belongs in the stream COMPUTE.");
        GRADE_EXPECT(grade, backward > before, "Backward begins with the last layer.");
        find(plan, ALL_REDUCE, layer, "The all-reduce");
        before = backward;
    }
    int optimizer = find(plan, OPTIMIZER, 0, "The optimizer");
    int copy = find(plan, COPY, 0, "The copy");
    GRADE_EXPECT(grade,
                 plan->calls[optimizer].stream == COMPUTE && plan->calls[copy].stream == COMPUTE &&
                     is_after(plan, optimizer, copy) && is_after(plan, before, optimizer),
                 "First backward, then the optimizer, then the copy, all in COMPUTE.");
}

static void averaged(Grade *grade) {
    for (int layers = 1; layers <= 5; layers++) {
        const Plan *plan = issue(grade, layers);
        int optimizer = find(plan, OPTIMIZER, 0, "The optimizer");
        for (int layer = layers - 1; layer >= 0; layer--) {
            int reduce = find(plan, ALL_REDUCE, layer, "The all-reduce");
            GRADE_EXPECT(grade, is_after(plan, find(plan, BACKWARD, layer, "Backward"), reduce),
                         "There is an order in which layer %d is averaged before its gradient is "
                         "there.",
                         layer);
            GRADE_EXPECT(grade, is_after(plan, reduce, optimizer),
                         "There is an order in which the optimizer uses layer %d's gradient before "
                         "it is averaged.",
                         layer);
        }
    }
}

static void overlap(Grade *grade) {
    const Plan *plan = issue(grade, 4);
    for (int layer = 3; layer > 0; layer--) {
        int reduce = find(plan, ALL_REDUCE, layer, "The all-reduce");
        int next = find(plan, BACKWARD, layer - 1, "Backward");
        GRADE_EXPECT(grade, !is_after(plan, reduce, next),
                     "Backward of layer %d has to wait for the all-reduce of layer %d: nothing "
                     "overlaps.",
                     layer - 1, layer);
        GRADE_EXPECT(grade, !is_after(plan, next, reduce),
                     "The all-reduce of layer %d has to wait for backward of layer %d: it could "
                     "begin sooner.",
                     layer, layer - 1);
    }
}

static void host_waits(Grade *grade) {
    const Plan *plan = issue(grade, 3);
    int copy = find(plan, COPY, 0, "The copy"), last = -1;
    for (int i = 0; i < plan->count; i++)
        if (plan->calls[i].kind == SYNCHRONIZE) last = i;
    for (int i = 0; i < copy; i++)
        GRADE_EXPECT(grade, plan->calls[i].kind != SYNCHRONIZE,
                     "The host waited in the middle of the step: meanwhile it launches nothing, "
                     "and the GPU may run dry. One stream waits for the other by an event.");
    GRADE_EXPECT(grade, last >= 0,
                 "The host returned at once: it would read the loss of some step before.");
    GRADE_EXPECT(grade, is_after(plan, copy, last),
                 "The host waited, but not for the copy: it can still be under way.");
}

const Grader grader_25_01 = {"25-gpus/01-issue-step",
                             {{"every call, once", 2, NULL, all_calls},
                              {"averaged in every order", 4, "every call, once", averaged},
                              {"overlap", 3, "averaged in every order", overlap},
                              {"the host waits", 1, "every call, once", host_waits}}};
