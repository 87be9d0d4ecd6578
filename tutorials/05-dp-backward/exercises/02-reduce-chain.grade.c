/* 02-reduce-chain.grade.c: the sum on 1, 2, 3 and 5 devices, its order, the copies. */
#include "tutorials/05-dp-backward/exercises/02-reduce-chain.h"

#include <math.h>
#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_05_02;

enum { MOST = 5, COUNT = 131 }; // a number lies behind each device's gradients

typedef struct Scene {
    Device *devices[MOST];
    float *gradients[MOST];
    float got[MOST][COUNT + 1]; // the contents of gradients
    size_t before[MOST], after[MOST], peak[MOST];
    WatchLog log;
} Scene;

static float whole(int device, size_t k) {
    return (float)(1 << device) + (float)(64 * (k % 7));
}

static float rough(int device, size_t k) {
    return sinf((float)(1 + k * MOST) + (float)device) *
           ldexpf(1.0f, (int)(((size_t)device * 5 + k) % 11));
}

static void run(Grade *grade, Scene *scene, int device_count, float (*value)(int, size_t)) {
    *scene = (Scene){0};
    for (int i = 0; i < device_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu:%d", i);
        Device *device = scene->devices[i] = device_open(name, NULL);
        scene->gradients[i] = device_alloc(device, (COUNT + 1) * sizeof(float));
        for (size_t k = 0; k <= COUNT; k++) scene->gradients[i][k] = value(i, k);
        scene->before[i] = device->bytes;
        device_reset_peak(device);
    }
    watch_begin(&scene->log);
    GRADE_RUN(grade, reduce_chain, scene->devices, scene->gradients, device_count, COUNT);
    watch_begin(NULL);
    for (int i = 0; i < device_count; i++) {
        if (grade_plays(grade)) memcpy(scene->got[i], scene->gradients[i], sizeof scene->got[i]);
        scene->after[i] = scene->devices[i]->bytes;
        scene->peak[i] = scene->devices[i]->peak_bytes;
    }
    GRADE_OUT(grade, *scene); // the player's pointers are values here
}

// Returns the device's number, or -1.
static int number_of(const Scene *scene, const Device *device) {
    for (int i = 0; i < MOST; i++)
        if (device && scene->devices[i] == device) return i;
    return -1;
}

static void check_sum(Grade *grade, int device_count) {
    static Scene scene;
    run(grade, &scene, device_count, whole);
    for (size_t k = 0; k < scene.log.count; k++)
        GRADE_EXPECT(grade, scene.log.events[k].bytes != COUNT,
                     "device_copy counts bytes, and a float has four: the ends of the gradients "
                     "did not arrive.");
    for (int i = 1; i < device_count; i++)
        for (size_t k = 0; k <= COUNT; k++)
            GRADE_EXPECT(grade, scene.got[i][k] == whole(i, k),
                         "The gradients of device %d were changed; only the first device's become "
                         "the sum.",
                         i);
    for (size_t k = 0; k < COUNT; k++) {
        float sum = 0, got = scene.got[0][k];
        for (int i = 0; i < device_count; i++) sum += whole(i, k);
        GRADE_EXPECT(grade, device_count == 1 || got != sum / (float)device_count,
                     "This is the mean of the gradients; their sum is wanted.");
        GRADE_EXPECT(grade, device_count < 3 || got != whole(0, k) + whole(1, k),
                     "Only the first two devices are in the sum: device 1 sends its own gradients "
                     "without the sum that it received.");
        for (int i = 0; i < device_count; i++)
            GRADE_EXPECT(grade, got != sum - whole(i, k),
                         "Device %d's gradients are missing from the sum of %d devices.", i,
                         device_count);
        GRADE_EXPECT(grade, got == sum, "Sum %zu on %d devices is %g and should be %g.", k,
                     device_count, (double)got, (double)sum);
    }
    GRADE_EXPECT(grade, scene.got[0][COUNT] == whole(0, COUNT),
                 "Something was written behind the last gradient: there are count of them.");
}

static void two_devices(Grade *grade) {
    check_sum(grade, 2);
}

static void all_worlds(Grade *grade) {
    check_sum(grade, 1);
    check_sum(grade, 3);
    check_sum(grade, 5);
}

static void neighbours(Grade *grade) {
    static Scene scene;
    run(grade, &scene, MOST, whole);
    size_t received[MOST] = {0};
    for (size_t k = 0; k < scene.log.count; k++) {
        const WatchEvent *event = &scene.log.events[k];
        int from = number_of(&scene, event->from), to = number_of(&scene, event->to);
        if (event->kind != WATCH_COPY || from == to) continue;
        GRADE_EXPECT(grade, from < 0 || to < 0 || from == to + 1,
                     "Device %d received from device %d; its right neighbour is device %d.", to,
                     from, to + 1);
        if (to >= 0) received[to]++;
    }
    GRADE_EXPECT(grade, received[0] > 0,
                 "A device read another device's memory: copy the data first.");
    for (int i = 0; i + 1 < MOST; i++)
        GRADE_EXPECT(grade, received[i] == 1,
                     "Device %d received %zu times. Every device but the last receives once: its "
                     "neighbour sends one sum.",
                     i, received[i]);
}

static void order(Grade *grade) {
    static Scene scene;
    run(grade, &scene, MOST, rough);
    for (size_t k = 0; k < COUNT; k++) {
        float sum = rough(MOST - 1, k);
        for (int i = MOST - 2; i >= 0; i--) sum = rough(i, k) + sum;
        GRADE_EXPECT(grade, scene.got[0][k] == sum,
                     "The sum is right except for its last bits, which depend on the order: the "
                     "last device's gradients come first.");
    }
}

static void memory(Grade *grade) {
    static Scene scene;
    const size_t bytes = COUNT * sizeof(float);
    for (int count = MOST; count > 0; count -= 2) {
        run(grade, &scene, count, whole);
        for (int i = 0; i < count; i++) {
            const size_t more = scene.after[i] - scene.before[i]; // modulo 2^64
            GRADE_EXPECT(grade, more % bytes == 0,
                         "device_free's number of bytes differs from device_alloc's.");
            GRADE_EXPECT(grade, more == 0,
                         "Device %d of %d has %zu bytes more than before: memory is given back to "
                         "the device that it was taken from.",
                         i, count, more);
            GRADE_EXPECT(grade, i == count - 1 || scene.peak[i] >= scene.before[i] + bytes,
                         "Device %d received into memory that it did not give: take it with "
                         "device_alloc.",
                         i);
            GRADE_EXPECT(grade, scene.peak[i] <= scene.before[i] + bytes,
                         "Device %d gave memory for %zu gradients; one is enough.", i,
                         (scene.peak[i] - scene.before[i]) / bytes);
        }
    }
}

const Grader grader_05_02 = {
    "05-dp-backward/02-reduce-chain",
    {{"two devices", 2, NULL, two_devices},
     {"one, three and five devices", 3, "two devices", all_worlds},
     {"each receives once, from its neighbour", 2, "one, three and five devices", neighbours},
     {"the order of the sum", 1, "one, three and five devices", order},
     {"the memory of each device", 2, "one, three and five devices", memory}}};
