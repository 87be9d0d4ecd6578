/* safetensors_gpt2.c: converts a GPT-2 saved by Hugging Face's transformers to our GPT
 * (nn/gpt.h).
 *
 *                   transformers                              here, as in nanoGPT
 *   names           GPT2Model: h.0.ln_1.weight                transformer.h.0.ln_1.weight
 *                   GPT2LMHeadModel: with transformer.        the same
 *   weights         Conv1D, [in, out]                         Linear, [out, in]
 *   causal mask     h.0.attn.bias, .masked_bias (older ones)  none
 *   lm_head.weight  left out: it is wte.weight                either (the loader's rule)
 *
 * attn.c_attn.weight, [E, 3E] or [3E, E], decides the layout of the whole file: attn.c_proj.weight
 * is square.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/tensor_files/safetensors.h"

static const char PREFIX[] = "transformer.";

static bool begins_with(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

// Whether this is tensor `part` of a block: "attn.bias" of "h.11.attn.bias".
static bool is_of_block(const SafeEntry *entry, const char *part) {
    const char *name = entry->name + (begins_with(entry->name, PREFIX) ? strlen(PREFIX) : 0);
    if (!begins_with(name, "h.")) return false;
    size_t digits = strspn(name + 2, "0123456789");
    return digits > 0 && name[2 + digits] == '.' && strcmp(name + 2 + digits + 1, part) == 0;
}

static bool is_conv1d(const SafeEntry *attention) {
    return attention->ndim == 2 && attention->shape[1] == 3 * attention->shape[0];
}

// All blocks must have one layout, and all names the prefix or none (but lm_head.weight).
static int check_uniform(const SafeTensors *content, const char *path, bool prefixed, Error *err) {
    for (size_t i = 0; i < content->count; i++) {
        const SafeEntry *entry = &content->entries[i];
        if (is_of_block(entry, "attn.c_attn.weight") && !is_conv1d(entry))
            return error_set(
                err, STATUS_USAGE,
                "%s: %s is no Conv1D weight [in, out], others in the file are: save the "
                "model with save_pretrained once more",
                path, entry->name);
        if (begins_with(entry->name, PREFIX) != prefixed && !begins_with(entry->name, "lm_head."))
            return error_set(err, STATUS_USAGE,
                             "%s: some names begin with \"%s\" and %s %s: save the model with "
                             "save_pretrained once more",
                             path, PREFIX, entry->name, prefixed ? "does not" : "does");
    }
    return 0;
}

// Transposes [rows, columns] in the file's buffer, where floats may be unaligned.
static void transpose(SafeEntry *entry) {
    size_t rows = entry->shape[0], columns = entry->shape[1];
    const size_t size = sizeof(float);
    char *to = (char *)entry->data, *from = memory_zalloc(entry->bytes);
    memcpy(from, to, entry->bytes);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            memcpy(to + (j * rows + i) * size, from + (i * columns + j) * size, size);
    free(from);
    entry->shape[0] = columns;
    entry->shape[1] = rows;
}

static bool is_weight_of_conv1d(const SafeEntry *entry) {
    static const char *const PARTS[] = {"attn.c_attn.weight", "attn.c_proj.weight",
                                        "mlp.c_fc.weight", "mlp.c_proj.weight"};
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++)
        if (is_of_block(entry, PARTS[i])) return entry->ndim == 2 && entry->dtype == DTYPE_F32;
    return false;
}

// Adds the prefix to the entry's name; a name too long for it stays, and loading rejects it.
static void add_prefix(SafeEntry *entry) {
    size_t length = strlen(entry->name), more = strlen(PREFIX);
    if (begins_with(entry->name, "lm_head.") || length + more >= sizeof entry->name) return;
    memmove(entry->name + more, entry->name, length + 1);
    memcpy(entry->name, PREFIX, more);
}

int safetensors_convert_gpt2(SafeTensors *content, const char *path, Error *err) {
    const SafeEntry *attention = NULL; // of the first block
    for (size_t i = 0; i < content->count && !attention; i++)
        if (is_of_block(&content->entries[i], "attn.c_attn.weight"))
            attention = &content->entries[i];
    if (!attention || !is_conv1d(attention)) return 0;
    bool prefixed = begins_with(attention->name, PREFIX);
    if (check_uniform(content, path, prefixed, err) != 0) return -1;
    size_t kept = 0;
    for (size_t i = 0; i < content->count; i++) {
        SafeEntry *entry = &content->entries[i];
        if (is_of_block(entry, "attn.bias") || is_of_block(entry, "attn.masked_bias")) continue;
        if (is_weight_of_conv1d(entry)) transpose(entry);
        if (!prefixed) add_prefix(entry);
        content->entries[kept++] = *entry;
    }
    content->count = kept;
    return 0;
}
