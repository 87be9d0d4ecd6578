/* 01-scatter-rows.grade.c: each part's rows, their memory's device, and the copies.
 */
#include "tutorials/04-dp-forward/exercises/01-scatter-rows.h"

#include "common/data/sampler.h"
#include "tutorials/grading/grading.h"

extern const Grader grader_04_01;

enum { MOST_PARTS = 5, MOST_ROWS = 12, ROW = 3, LONG_ROW = 7 };

typedef struct Scene {
    Device *devices[MOST_PARTS];
    size_t before[MOST_PARTS], after[MOST_PARTS]; // bytes allocated on each device
    Device *from;                                 // the last device
    float *batch;                                 // [MOST_ROWS, row] on `from`
    size_t row;                                   // floats of a row
    Part parts[MOST_PARTS];
    float rows[MOST_PARTS][MOST_ROWS * LONG_ROW]; // the contents of parts[i].rows
    WatchLog log;
} Scene;

static void look(Scene *scene, int part_count) {
    for (int i = 0; i < part_count; i++) {
        const Part *part = &scene->parts[i];
        scene->after[i] = scene->devices[i]->bytes;
        const bool is_part = part->rows && part->end >= part->begin && part->end <= MOST_ROWS;
        for (size_t k = 0; is_part && k < (part->end - part->begin) * scene->row; k++)
            scene->rows[i][k] = part->rows[k];
    }
}

static void run(Grade *grade, Scene *scene, size_t rows, size_t row, int part_count) {
    static float nothing; // a part's rows before the call
    *scene = (Scene){.row = row};
    for (int i = 0; i < part_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu:%d", i);
        scene->devices[i] = device_open(name, NULL);
        scene->parts[i] = (Part){scene->devices[i], 99, 999, &nothing};
    }
    scene->from = scene->devices[part_count - 1];
    scene->batch = device_alloc(scene->from, MOST_ROWS * row * sizeof(float));
    for (size_t k = 0; k < MOST_ROWS * row; k++) scene->batch[k] = (float)(k + 1);
    for (int i = 0; i < part_count; i++) scene->before[i] = scene->devices[i]->bytes;
    watch_begin(&scene->log);
    GRADE_RUN(grade, scatter_rows, scene->from, scene->batch, rows, row, scene->parts, part_count);
    watch_begin(NULL);
    if (grade_plays(grade)) look(scene, part_count);
    GRADE_OUT(grade, *scene); // the player's pointers are values here
    for (int i = 0; i < part_count; i++) {
        size_t floats = (scene->parts[i].end - scene->parts[i].begin) * row;
        GRADE_EXPECT(grade, floats == 0 || scene->after[i] - scene->before[i] != floats,
                     "device_alloc counts bytes, and a float has four: the memory is too small for "
                     "the rows.");
    }
}

static bool is_in_batch(const Scene *scene, const float *rows) {
    return rows >= scene->batch && rows < scene->batch + MOST_ROWS * scene->row;
}

// The contents of each part, copied or not.
static void check_rows(Grade *grade, size_t rows, size_t row, int part_count) {
    static Scene scene;
    run(grade, &scene, rows, row, part_count);
    for (int i = 0; i < part_count; i++) {
        const Part *part = &scene.parts[i];
        size_t begin, end;
        chunk_bounds(rows, (size_t)part_count, (size_t)i, &begin, &end);
        GRADE_EXPECT(
            grade, part->end - part->begin == end - begin && (begin == end || part->begin == begin),
            "%zu rows on %d devices: device %d should have rows %zu to %zu of the batch, "
            "not %zu to %zu.",
            rows, part_count, i, begin, end, part->begin, part->end);
        GRADE_EXPECT(grade, begin < end || !part->rows,
                     "Device %d gets no rows, and its `rows` is not NULL: the caller would free "
                     "that pointer. (%zu rows on %d devices)",
                     i, rows, part_count);
        if (begin == end) continue;
        GRADE_EXPECT(grade, part->rows, "Device %d has %zu rows, but no memory for them.", i,
                     end - begin);
        GRADE_EXPECT(grade, !is_in_batch(&scene, part->rows),
                     "A part points into the batch, which lies on another device: copy its rows "
                     "there.");
        GRADE_EXPECT(grade, scene.rows[i][0] != 1.0f || begin == 0,
                     "Every part got the first rows: row begin of the batch is at batch + begin * "
                     "row_size.");
        for (size_t k = 0; k < (end - begin) * row; k++)
            GRADE_EXPECT(grade, scene.rows[i][k] == (float)(begin * row + k + 1),
                         row != ROW ? "A row has row_size floats: yours were right while that was "
                                      "3, and are not with another length."
                         : k == end - begin ? "A part has end - begin rows of row_size floats: "
                                              "only end - begin floats arrived."
                         : k * sizeof(float) >= (end - begin) * row
                             ? "device_copy counts bytes, and a float has four: the ends of the "
                               "rows did not arrive."
                             : "The rows of a part are not those of the batch.");
    }
}

static void one_device(Grade *grade) {
    static Scene scene;
    run(grade, &scene, 4, ROW, 1);
    const Part *part = &scene.parts[0];
    GRADE_EXPECT(grade, part->begin == 0 && part->end == 4 && part->rows,
                 "With one device, it gets all 4 rows; yours got %zu.", part->end - part->begin);
}

static void equal_parts(Grade *grade) {
    check_rows(grade, 12, ROW, 1);
    check_rows(grade, 12, ROW, 2);
    check_rows(grade, 12, ROW, 3);
    check_rows(grade, 12, LONG_ROW, 2);
}

static void unequal_parts(Grade *grade) {
    check_rows(grade, 11, ROW, 3);
    check_rows(grade, 9, ROW, 5);
    check_rows(grade, 3, ROW, 5);
    check_rows(grade, 0, ROW, 2);
}

static void memory_of_device(Grade *grade) {
    static Scene scene;
    bool more = false;
    run(grade, &scene, 11, ROW, 3);
    for (int i = 0; i < 3; i++) {
        size_t bytes = (scene.parts[i].end - scene.parts[i].begin) * ROW * sizeof(float);
        size_t taken = scene.after[i] - scene.before[i];
        GRADE_EXPECT(grade, taken >= bytes,
                     "The memory was allocated on another device than the part's. "
                     "(device %d)",
                     i);
        more = more || taken > bytes;
    }
    GRADE_EXPECT(grade, !more,
                 "A device gave more memory than its rows need: a device that has to hold the "
                 "whole batch saves nothing.");
}

static void copies(Grade *grade) {
    static Scene scene;
    run(grade, &scene, 9, ROW, 5); // 2, 2, 2, 2, 1
    size_t count = 0, bytes = 0, received[MOST_PARTS] = {0};
    for (size_t k = 0; k < scene.log.count; k++) {
        const WatchEvent *event = &scene.log.events[k];
        if (event->kind != WATCH_COPY) continue;
        count++;
        bytes += event->bytes;
        for (int i = 0; i < MOST_PARTS; i++)
            if (event->to == scene.devices[i]) received[i] += event->bytes;
        GRADE_EXPECT(grade, event->from == scene.from,
                     "A copy came from another device than the batch's.");
    }
    GRADE_EXPECT(
        grade, count > 0,
        "The rows were copied without device_copy: memcpy does not work between two GPUs.");
    GRADE_EXPECT(grade, bytes <= 9 * ROW * sizeof(float),
                 "A part got more than its rows: scatter sends each row to one device only. (%zu "
                 "bytes were copied, the batch has %zu)",
                 bytes, 9 * ROW * sizeof(float));
    GRADE_EXPECT(grade, count <= 5,
                 "There were %zu copies for 5 devices: a part's rows lie together, so one each is "
                 "enough.",
                 count);
    GRADE_EXPECT(grade, count == 5,
                 "There were %zu copies for 5 devices: the rows of the batch's own device need "
                 "device_copy, too.",
                 count);
    for (int i = 0; i < MOST_PARTS; i++) {
        size_t wanted = (scene.parts[i].end - scene.parts[i].begin) * ROW * sizeof(float);
        GRADE_EXPECT(grade, received[i] == wanted,
                     "device_copy's `to` is not the device whose memory it writes. (device %d has "
                     "memory for %zu bytes, and %zu were copied to it)",
                     i, wanted, received[i]);
    }
}

const Grader grader_04_01 = {
    "04-dp-forward/01-scatter-rows",
    {{"one device", 1, NULL, one_device},
     {"parts of equal length", 3, "one device", equal_parts},
     {"short and empty parts", 2, "parts of equal length", unequal_parts},
     {"memory of the right device", 2, "parts of equal length", memory_of_device},
     {"what was copied", 2, "parts of equal length", copies}}};
