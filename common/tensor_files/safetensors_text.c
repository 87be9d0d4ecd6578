/* safetensors_text.c: counts a header's values before they are parsed: a parsed value takes about
 * 40 times the bytes of its text, so 20 MB of brackets and commas would take a gigabyte.
 */
#include "common/tensor_files/safetensors_text.h"

#include <stdbool.h>
#include <string.h>

#include "common/tensor_files/safetensors.h"

enum {
    VALUES_PER_TENSOR =
        16,        // an object, its three fields, at most four sizes, two offsets; and more
    HEADER_AT = 8, // where a header begins, with a '{'
};

int safetensors_check_foreign(const unsigned char *first, size_t count, Error *err) {
    if (count > HEADER_AT && first[HEADER_AT] == '{') return 0;
    const char *what = NULL;
    if (count >= 4 && memcmp(first, "PK\3\4", 4) == 0) what = "a zip archive";
    if (count >= 2 && first[0] == 0x80 && first[1] >= 2 && first[1] <= 5) what = "a pickle";
    if (!what) return 0;
    return error_set(err, STATUS_USAGE,
                     "is %s, as torch.save writes it; save it with safetensors: python3 -c 'import "
                     "torch; from safetensors.torch import save_file; "
                     "w = torch.load(\"IN\", map_location=\"cpu\", weights_only=True); "
                     "save_file({k: v.contiguous() for k, v in w.items()}, \"OUT.safetensors\")'",
                     what);
}

// Returns the closing quote of the string whose opening quote is before `at`, or the text's end.
static const char *skip_string(const char *at, const char *end, Error *err) {
    for (; at < end && *at != '"'; at++) {
        bool zero = strncmp(at, "\\u0000", 6) == 0;
        if (zero || (unsigned char)*at < ' ') {
            error_set(err, STATUS_USAGE, "a name or text in the header holds a control character");
            return NULL;
        }
        if (*at == '\\' && at + 1 < end) at++; // what follows is no closing quote
    }
    return at;
}

int safetensors_check_text(const char *header, size_t length, Error *err) {
    size_t values = 0, objects = 0; // the root is one of the objects, and the metadata another
    const char *end = header + length;
    for (const char *at = header; at < end; at++) {
        if (*at == '"') at = skip_string(at + 1, end, err);
        if (!at) return -1;
        values += at < end && strchr(",:[{", *at) != NULL && *at != '\0';
        objects += at < end && *at == '{';
    }
    if (objects > SAFE_TENSORS_MAX + 2)
        return error_set(err, STATUS_USAGE, "has %zu tensors, %d are the most that are read",
                         objects - 1, SAFE_TENSORS_MAX);
    if (values > (size_t)VALUES_PER_TENSOR * SAFE_TENSORS_MAX)
        return error_set(err, STATUS_USAGE, "the header has %zu values, %d are the most", values,
                         VALUES_PER_TENSOR * SAFE_TENSORS_MAX);
    return 0;
}
