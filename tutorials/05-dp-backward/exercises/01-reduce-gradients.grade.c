/* 01-reduce-gradients.grade.c: the sum on 1, 2, 3 and 5 devices, its bits, copies and memory. */
#include "tutorials/05-dp-backward/exercises/01-reduce-gradients.h"

#include <math.h>
#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_05_01;

enum { MOST = 5, COUNT = 251 }; // a number lies behind each device's gradients

typedef struct Scene {
    Device *devices[MOST];
    float *gradients[MOST];
    float got[MOST][COUNT + 1]; // the contents of gradients
    size_t before, after, peak; // bytes of the first device
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
        scene->devices[i] = device_open(name, NULL);
        scene->gradients[i] = device_alloc(scene->devices[i], (COUNT + 1) * sizeof(float));
        for (size_t k = 0; k <= COUNT; k++) scene->gradients[i][k] = value(i, k);
    }
    scene->before = scene->devices[0]->bytes;
    device_reset_peak(scene->devices[0]);
    watch_begin(&scene->log);
    GRADE_RUN(grade, reduce_gradients, scene->devices, scene->gradients, device_count, COUNT);
    watch_begin(NULL);
    for (int i = 0; grade_plays(grade) && i < device_count; i++)
        memcpy(scene->got[i], scene->gradients[i], sizeof scene->got[i]);
    scene->after = scene->devices[0]->bytes;
    scene->peak = scene->devices[0]->peak_bytes;
    GRADE_OUT(grade, *scene); // the player's pointers are values here
}

static void check_sum(Grade *grade, int device_count) {
    static Scene scene;
    run(grade, &scene, device_count, whole);
    for (size_t k = 0; k < scene.log.count; k++)
        GRADE_EXPECT(grade, scene.log.events[k].bytes != COUNT,
                     "device_copy counts bytes, and a float has four: the ends of the gradients "
                     "did not arrive.");
    for (size_t k = 0; k < COUNT; k++) {
        float sum = 0, got = scene.got[0][k];
        for (int i = 0; i < device_count; i++) sum += whole(i, k);
        GRADE_EXPECT(grade, device_count == 1 || got != sum / (float)device_count,
                     "This is the mean of the gradients; their sum is wanted.");
        GRADE_EXPECT(grade, got != sum - whole(device_count - 1, k),
                     "The last device is missing from the sum. (%d devices)", device_count);
        GRADE_EXPECT(grade, got != sum - whole(0, k),
                     "The gradients of the first device are missing from the sum.");
        GRADE_EXPECT(grade, got == sum, "Sum %zu on %d devices is %g and should be %g.", k,
                     device_count, (double)got, (double)sum);
    }
    GRADE_EXPECT(grade, scene.got[0][COUNT] == whole(0, COUNT),
                 "Something was written behind the last gradient: there are count of them.");
    for (int i = 1; i < device_count; i++)
        for (size_t k = 0; k <= COUNT; k++)
            GRADE_EXPECT(grade, scene.got[i][k] == whole(i, k),
                         "The gradients of device %d were changed; only the first device's become "
                         "the sum.",
                         i);
}

static void two_devices(Grade *grade) {
    check_sum(grade, 2);
}

static void all_worlds(Grade *grade) {
    check_sum(grade, 1);
    check_sum(grade, 3);
    check_sum(grade, 5);
}

static void same_bits(Grade *grade) {
    static Scene scene;
    run(grade, &scene, MOST, rough);
    for (size_t k = 0; k < COUNT; k++) {
        float sum = rough(0, k);
        for (int i = 1; i < MOST; i++) sum += rough(i, k);
        GRADE_EXPECT(grade, scene.got[0][k] == sum,
                     "The sum is right except for its last bits, which depend on the order: device "
                     "1 before device 2.");
    }
}

static void copies(Grade *grade) {
    static Scene scene;
    run(grade, &scene, 3, whole);
    size_t count = 0;
    for (size_t k = 0; k < scene.log.count; k++) {
        const WatchEvent *event = &scene.log.events[k];
        if (event->kind != WATCH_COPY || event->from == scene.devices[0]) continue;
        count++;
        GRADE_EXPECT(grade, event->to == scene.devices[0],
                     "Gradients were copied to another device than the first.");
        GRADE_EXPECT(grade, event->bytes == COUNT * sizeof(float),
                     "A copy had %zu bytes, and %d floats have %zu.", event->bytes, COUNT,
                     COUNT * sizeof(float));
    }
    GRADE_EXPECT(grade, count > 0, "A device read another device's memory: copy the data first.");
    GRADE_EXPECT(grade, count == 2, "Two other devices, but %zu copies from them.", count);
    GRADE_EXPECT(grade, scene.peak >= scene.before + COUNT * sizeof(float),
                 "What was copied went into memory that the first device did not give: take it "
                 "with device_alloc.");
}

static void memory(Grade *grade) {
    static Scene scene;
    for (int count = 3; count > 0; count -= 2) {
        run(grade, &scene, count, whole);
        const size_t bytes = scene.after; // modulo 2^64 if too many were given back
        GRADE_EXPECT(grade, (bytes - scene.before) % (COUNT * sizeof(float)) == 0,
                     "device_free's number of bytes differs from device_alloc's.");
        GRADE_EXPECT(grade, bytes <= scene.before,
                     "The memory that was taken on the first device was not given back: "
                     "device_free. (%d devices)",
                     count);
    }
}

const Grader grader_05_01 = {
    "05-dp-backward/01-reduce-gradients",
    {{"two devices", 3, NULL, two_devices},
     {"one, three and five devices", 2, "two devices", all_worlds},
     {"the same bits as in order", 2, "one, three and five devices", same_bits},
     {"what was copied", 2, "two devices", copies},
     {"the memory is given back", 1, "two devices", memory}}};
