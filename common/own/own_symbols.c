/* own_symbols.c: which symbols a user's shared object has and needs, read from the file (ELF)
 * before it is loaded.
 */
#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/own/own_file.h"

// The symbols that a file may define, and the program that loads each.
static const struct {
    const char *symbol, *loaded_by;
} KINDS[] = {{"own_dp", "train_dp --wrapper"},
             {"own_ddp", "train_ddp --wrapper"},
             {"own_fsdp", "train_fsdp --wrapper"},
             {"own_all_reduce", "train_ddp --all-reduce"}};
enum { KIND_COUNT = sizeof KINDS / sizeof *KINDS };

// The built-in wrappers' functions: names, and beginnings of names that end with an underscore.
static const char *const BUILT_IN[] = {"distributed_data_parallel",
                                       "ddp_",
                                       "reducer_",
                                       "gradient_slab_",
                                       "sync_state_",
                                       "buckets_",
                                       "verify_model",
                                       "fully_shard",
                                       "fsdp_",
                                       "unit_",
                                       "own_units_",
                                       "identities_",
                                       "collect_shards",
                                       "sharded_optimizer",
                                       "data_parallel",
                                       "data_parallel_",
                                       "dp_",
                                       "replicate_",
                                       "replica_create",
                                       "replica_close",
                                       "shards_",
                                       "scatter_to_one",
                                       "bundle_",
                                       "strategy_",
                                       "own_file_"};
// Functions by which a file could reach others than the program exports.
static const char *const LOADERS[] = {"dlopen", "dlmopen", "dlsym", "dlvsym"};

typedef struct Image { // of a file in memory
    const unsigned char *bytes;
    size_t size;
    const Elf64_Shdr *sections;
    size_t section_count;
    const char *path; // for messages
    const char *wanted;
    bool has[KIND_COUNT];
    Error *err;
} Image;

// Sets sections. Returns false if the file has no table of sections that lies inside it.
static bool find_sections(Image *image) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)image->bytes;
    if (image->size < sizeof *header || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_type != ET_DYN || header->e_shentsize != sizeof(Elf64_Shdr) ||
        header->e_shoff % sizeof(uint64_t) != 0 || header->e_shoff > image->size ||
        header->e_shnum > (image->size - header->e_shoff) / sizeof(Elf64_Shdr))
        return false;
    image->sections = (const Elf64_Shdr *)(image->bytes + header->e_shoff);
    image->section_count = header->e_shnum;
    return true;
}

// Returns the section's entries, each of `size` bytes, and sets *count; NULL if it lies outside the
// file.
static const void *entries(const Image *image, const Elf64_Shdr *section, size_t size,
                           size_t *count) {
    if (section->sh_offset > image->size || section->sh_offset % sizeof(uint64_t) != 0 ||
        section->sh_size > image->size - section->sh_offset)
        return NULL;
    *count = section->sh_size / size;
    return image->bytes + section->sh_offset;
}

// Returns the text at `offset` of the section's strings; "" if it lies outside the file.
static const char *name_at(const Image *image, const Elf64_Shdr *section, uint64_t offset) {
    if (section->sh_link >= image->section_count) return "";
    const Elf64_Shdr *strings = &image->sections[section->sh_link];
    if (strings->sh_offset > image->size || strings->sh_size > image->size - strings->sh_offset ||
        offset >= strings->sh_size)
        return "";
    const char *name = (const char *)image->bytes + strings->sh_offset + offset;
    return memchr(name, '\0', strings->sh_size - offset) ? name : "";
}

static bool is_built_in(const char *name) {
    for (size_t i = 0; i < sizeof BUILT_IN / sizeof *BUILT_IN; i++) {
        size_t length = strlen(BUILT_IN[i]);
        if (BUILT_IN[i][length - 1] == '_' ? strncmp(name, BUILT_IN[i], length) == 0
                                           : strcmp(name, BUILT_IN[i]) == 0)
            return true;
    }
    return false;
}

// Checks a name that the file needs and does not define.
static int check_needed(const Image *image, const char *name) {
    if (is_built_in(name))
        return error_set(image->err, STATUS_USAGE,
                         "%s: calls %s, which belongs to the built-in wrapper: %s replaces it, and "
                         "does its work by the functions that its header names",
                         image->path, name, image->wanted);
    for (size_t i = 0; i < sizeof LOADERS / sizeof *LOADERS; i++)
        if (strcmp(name, LOADERS[i]) == 0)
            return error_set(image->err, STATUS_USAGE,
                             "%s: calls %s: the public functions are called by their names, and "
                             "others are not for it",
                             image->path, name);
    return 0;
}

static int read_symbols(Image *image, const Elf64_Shdr *section) {
    size_t count;
    const Elf64_Sym *symbols = entries(image, section, sizeof *symbols, &count);
    for (size_t i = 1; symbols && i < count; i++) {
        const char *name = name_at(image, section, symbols[i].st_name);
        if (symbols[i].st_shndx == SHN_UNDEF && check_needed(image, name) != 0) return -1;
        for (int k = 0; k < KIND_COUNT && symbols[i].st_shndx != SHN_UNDEF; k++)
            if (strcmp(name, KINDS[k].symbol) == 0) image->has[k] = true;
    }
    return 0;
}

// A library of this project brings its own wrappers, and groups that the program's do not know.
static int read_libraries(const Image *image, const Elf64_Shdr *section) {
    size_t count;
    const Elf64_Dyn *items = entries(image, section, sizeof *items, &count);
    for (size_t i = 0; items && i < count && items[i].d_tag != DT_NULL; i++) {
        if (items[i].d_tag != DT_NEEDED) continue;
        const char *library = name_at(image, section, items[i].d_un.d_val);
        if (strstr(library, "libddpc") || strstr(library, "librooms"))
            return error_set(image->err, STATUS_USAGE,
                             "%s: is linked with %s, which has the built-in wrapper -- link it "
                             "without: the program has the public functions",
                             image->path, library);
    }
    return 0;
}

static int check_kind(const Image *image) {
    int first = -1;
    for (int k = 0; k < KIND_COUNT; k++) {
        if (!image->has[k]) continue;
        if (first >= 0)
            return error_set(image->err, STATUS_USAGE,
                             "%s: defines %s and %s: a file replaces one thing", image->path,
                             KINDS[first].symbol, KINDS[k].symbol);
        first = k;
    }
    if (first < 0)
        return error_set(
            image->err, STATUS_USAGE,
            "%s: defines none of own_dp, own_ddp, own_fsdp, own_all_reduce, so there is "
            "nothing to run -- is the table static?",
            image->path);
    if (strcmp(KINDS[first].symbol, image->wanted) != 0)
        return error_set(image->err, STATUS_USAGE, "%s: defines %s: run it by %s FILE", image->path,
                         KINDS[first].symbol, KINDS[first].loaded_by);
    return 0;
}

static int check(Image *image) {
    if (!find_sections(image))
        return error_set(image->err, STATUS_USAGE, "%s: is no shared object of this machine",
                         image->path);
    for (size_t i = 0; i < image->section_count; i++) {
        const Elf64_Shdr *section = &image->sections[i];
        if (section->sh_type == SHT_DYNSYM && read_symbols(image, section) != 0) return -1;
        if (section->sh_type == SHT_DYNAMIC && read_libraries(image, section) != 0) return -1;
    }
    return check_kind(image);
}

int own_symbols_check(const char *object, const char *path, const char *symbol, Error *err) {
    Image image = {.path = path, .wanted = symbol, .err = err};
    int fd = file_open(object, &image.size, err);
    if (fd < 0) return -1;
    void *bytes = mmap(NULL, image.size ? image.size : 1, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED) return error_set(err, STATUS_USAGE, "%s: cannot be read", path);
    image.bytes = bytes;
    int status = check(&image);
    munmap(bytes, image.size ? image.size : 1);
    return status;
}
