/* 02-gather-rows.grade.c: every row's position in the outputs, and the copies. */
#include "tutorials/04-dp-forward/exercises/02-gather-rows.h"

#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_04_02;

enum { MOST_PARTS = 5, ROW = 3, LONG_ROW = 7, MOST_ROWS = 18 };

typedef struct Scene {
    Device *devices[MOST_PARTS];
    Device *to; // the last device that has rows
    OutputPart parts[MOST_PARTS];
    float *outputs, got[MOST_ROWS * LONG_ROW]; // the contents of outputs
    size_t rows, returned;
    int part_count;
    WatchLog log;
} Scene;

// counts: rows of each part, ended by -1. Row r of the batch is r*row + 1, r*row + 2, ...
static void run(Grade *grade, Scene *scene, const int *counts, size_t row) {
    *scene = (Scene){0};
    for (int i = 0; counts[i] >= 0; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu:%d", i);
        Device *device = scene->devices[i] = device_open(name, NULL);
        size_t count = (size_t)counts[i];
        scene->parts[i] = (OutputPart){.device = device, .count = count};
        if (count > 0) scene->parts[i].rows = device_alloc(device, count * row * sizeof(float));
        for (size_t k = 0; k < count * row; k++)
            scene->parts[i].rows[k] = (float)(scene->rows * row + k + 1);
        scene->rows += count;
        if (count > 0) scene->to = device;
        scene->part_count++;
    }
    scene->outputs = device_alloc(scene->to, MOST_ROWS * row * sizeof(float));
    for (size_t k = 0; k < MOST_ROWS * row; k++) scene->outputs[k] = -1.0f;
    watch_begin(&scene->log);
    scene->returned = GRADE_CALL(grade, gather_rows, scene->to, scene->outputs, row, scene->parts,
                                 scene->part_count);
    watch_begin(NULL);
    if (grade_plays(grade)) memcpy(scene->got, scene->outputs, MOST_ROWS * row * sizeof(float));
    GRADE_OUT(grade, *scene); // the player's pointers are values here
}

static void check(Grade *grade, const int *counts, const char *sentence) {
    static Scene scene;
    run(grade, &scene, counts, ROW);
    size_t last = scene.rows * ROW - 1, first = scene.parts[0].count; // rows of the first part
    GRADE_EXPECT(grade, scene.returned == scene.rows, "There are %zu rows in all, not %zu.",
                 scene.rows, scene.returned);
    bool empty = true, to_a_part = false;
    for (size_t k = 0; k < scene.log.count; k++)
        to_a_part = to_a_part || scene.log.events[k].to != scene.to;
    for (size_t k = 0; k < MOST_ROWS * ROW; k++) empty = empty && scene.got[k] == -1.0f;
    GRADE_EXPECT(grade, !empty || !to_a_part,
                 "Copies were made, and nothing arrived in the outputs: device_copy takes the "
                 "destination first, then the source.");
    GRADE_EXPECT(grade, empty || scene.got[0] != -1.0f,
                 "The first part is missing from the outputs.");
    const float last_part =
        (float)((scene.rows - scene.parts[scene.part_count - 1].count) * ROW + 1);
    GRADE_EXPECT(grade, scene.got[0] != last_part || scene.got[last] != -1.0f,
                 "Every part was copied to the beginning of the outputs: the destination must "
                 "advance by the rows of each part.");
    GRADE_EXPECT(
        grade,
        4 * first * ROW >= MOST_ROWS * ROW ||
            scene.got[4 * first * ROW] != (float)(first * ROW + 1),
        "A part's offset is four times too large: a float pointer counts floats, and not bytes.");
    GRADE_EXPECT(grade, scene.got[0] == 1.0f || scene.got[last] != (float)ROW,
                 "The outputs are in the order of the devices from the last to the first.");
    GRADE_EXPECT(grade, scene.got[first] != (float)(first * ROW + 1),
                 "A part was copied over the previous part: row r of the outputs begins at outputs "
                 "+ r * row_size.");
    GRADE_EXPECT(grade, scene.got[0] != 1.0f || scene.got[1] != -1.0f,
                 "Only one float of each row arrived: a row has row_size of them.");
    GRADE_EXPECT(grade, scene.got[ROW - 1] != -1.0f,
                 "The ends of the parts did not arrive: device_copy counts bytes, and a float has "
                 "four.");
    for (size_t k = 0; k <= last; k++)
        GRADE_EXPECT(grade, scene.got[k] == (float)(k + 1), "%s (row %zu of %zu)", sentence,
                     k / ROW, scene.rows);
    GRADE_EXPECT(grade, scene.got[last + 1] == -1.0f, "Something was written behind the last row.");
}

static void two_parts(Grade *grade) {
    static Scene scene;
    check(grade, (int[]){1, 1, -1}, "The outputs of the last device are missing.");
    check(grade, (int[]){4, 4, -1}, "The outputs of the last device are missing.");
    run(grade, &scene, (int[]){2, 2, -1}, LONG_ROW);
    for (size_t k = 0; k < 4 * LONG_ROW; k++)
        GRADE_EXPECT(grade, scene.got[k] == (float)(k + 1),
                     "A row has row_size floats: yours were right while that was %d, and are not "
                     "with another length.",
                     ROW);
}

static void unequal_parts(Grade *grade) {
    const char *sentence =
        "A short part is in the wrong place: a part begins where the previous part ends.";
    check(grade, (int[]){4, 4, 3, -1}, sentence);
    check(grade, (int[]){2, 2, 2, 2, 1, -1}, sentence);
}

static void copies(Grade *grade) {
    static Scene scene;
    run(grade, &scene, (int[]){2, 2, 1, 0, 0, -1}, ROW);
    size_t count = 0, sent[MOST_PARTS] = {0};
    for (size_t k = 0; k < scene.log.count; k++) {
        const WatchEvent *event = &scene.log.events[k];
        if (event->kind != WATCH_COPY) continue;
        count++;
        GRADE_EXPECT(grade, event->bytes > 0,
                     "A part without rows was copied, although its pointer is NULL.");
        for (int i = 0; i < MOST_PARTS; i++)
            if (event->from == scene.devices[i]) sent[i] += event->bytes;
        GRADE_EXPECT(grade, event->to == scene.to,
                     "A copy went to another device than the outputs'.");
    }
    GRADE_EXPECT(
        grade, count > 0,
        "The rows were copied without device_copy: memcpy does not work between two GPUs.");
    GRADE_EXPECT(grade, count == 3,
                 "Three parts have rows, but there were %zu copies by device_copy; the rows of the "
                 "outputs' own device need one, too.",
                 count);
    for (int i = 0; i < MOST_PARTS; i++) {
        size_t wanted = scene.parts[i].count * ROW * sizeof(float);
        GRADE_EXPECT(grade, sent[i] == wanted,
                     "device_copy's `from` is not the device whose memory it reads. (device %d has "
                     "%zu bytes, and %zu were copied from it)",
                     i, wanted, sent[i]);
    }
}

const Grader grader_04_02 = {
    "04-dp-forward/02-gather-rows",
    {{"two parts of equal length", 4, NULL, two_parts},
     {"parts of unequal length", 3, "two parts of equal length", unequal_parts},
     {"what was copied", 3, "two parts of equal length", copies}}};
