/* symbols.cpp: names of kernels, for messages, and the __shared__ variables of their objects. Most
 * are static or templates, which the dynamic linker does not know; they are read from the symbol
 * table of the object's file, which contains all of them unless it was stripped.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "emulator.h"

namespace emulator {

struct Object {        // the program, or a loaded shared object
    uintptr_t address; // of the function in it: given
    uintptr_t base;    // difference between loaded addresses and those in the file
    size_t module;     // number of its thread-local storage; 0: it has none
    const char *path;
};

static int on_object(struct dl_phdr_info *info, size_t, void *context) {
    auto *object = static_cast<Object *>(context);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &part = info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part.p_vaddr;
        if (part.p_type != PT_LOAD || object->address - begin >= part.p_memsz) continue;
        object->base = info->dlpi_addr;
        object->module = info->dlpi_tls_modid;
        object->path = info->dlpi_name[0] != '\0' ? info->dlpi_name : "/proc/self/exe";
        return 1;
    }
    return 0;
}

// Calls use(symbol, name) for the symbols of the file, until it returns true.
template <typename Use> static void each_symbol(const char *file, Use use) {
    const auto *header = reinterpret_cast<const ElfW(Ehdr) *>(file);
    const auto *sections = reinterpret_cast<const ElfW(Shdr) *>(file + header->e_shoff);
    for (int s = 0; s < header->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB) continue;
        const char *names = file + sections[sections[s].sh_link].sh_offset;
        const auto *symbols = reinterpret_cast<const ElfW(Sym) *>(file + sections[s].sh_offset);
        for (size_t i = 0; i < sections[s].sh_size / sizeof *symbols; i++)
            if (use(symbols[i], names + symbols[i].st_name)) return;
    }
}

// Maps the file of the object that contains the function; NULL if there is none. It stays mapped,
// for its names.
static const char *map_object(const void *function, Object *object) {
    *object = {reinterpret_cast<uintptr_t>(function), 0, 0, nullptr};
    if (dl_iterate_phdr(on_object, object) == 0) return nullptr;
    int fd = open(object->path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) return nullptr;
    void *file = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    return file == MAP_FAILED ? nullptr : static_cast<const char *>(file);
}

const char *symbol_name(const void *function) {
    static thread_local char unnamed[32];
    snprintf(unnamed, sizeof unnamed, "%p", function);
    Object object;
    const char *file = map_object(function, &object), *name = nullptr;
    if (file == nullptr) return unnamed;
    each_symbol(file, [&](const ElfW(Sym) & symbol, const char *its_name) {
        if (symbol.st_value != object.address - object.base ||
            ELF64_ST_TYPE(symbol.st_info) != STT_FUNC)
            return false;
        name = its_name;
        return true;
    });
    if (name == nullptr) return unnamed;
    int status_code = 0;
    const char *readable = abi::__cxa_demangle(name, nullptr, nullptr, &status_code);
    return readable != nullptr ? readable : name;
}

const char *task_name(const Task &task) {
    return task.kernel != nullptr ? symbol_name(task.kernel) : task.what;
}

// Whether the symbol is a variable inside a function, whose name begins with _ZZ.
static bool is_shared(const ElfW(Sym) & symbol, const char *name) {
    return ELF64_ST_TYPE(symbol.st_info) == STT_TLS && symbol.st_shndx != SHN_UNDEF &&
           symbol.st_size > 0 && strncmp(name, "_ZZ", 3) == 0;
}

std::vector<SharedVariable> shared_variables(const void *kernel) {
    std::vector<SharedVariable> variables;
    Object object;
    const char *file = map_object(kernel, &object);
    if (file == nullptr) return variables;
    each_symbol(file, [&](const ElfW(Sym) & symbol, const char *name) {
        if (is_shared(symbol, name))
            variables.push_back({object.module, symbol.st_value, symbol.st_size});
        return false;
    });
    return variables;
}

} // namespace emulator
