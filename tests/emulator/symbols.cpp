/* symbols.cpp: the name of a kernel, for messages. Kernels are mostly static or templates, which
 * the dynamic linker does not know; so the file that the kernel was loaded from is asked, whose
 * symbol table has them all unless it was stripped.
 */
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "emulator.h"

namespace emulator {

struct Object {        // the program, or a shared object that it has loaded
    uintptr_t address; // of the kernel: given
    uintptr_t base;    // where it was loaded, relative to what its file says
    const char *path;
};

static int on_object(struct dl_phdr_info *info, size_t, void *context) {
    auto *object = static_cast<Object *>(context);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &part = info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part.p_vaddr;
        if (part.p_type != PT_LOAD || object->address - begin >= part.p_memsz) continue;
        object->base = info->dlpi_addr;
        object->path = info->dlpi_name[0] != '\0' ? info->dlpi_name : "/proc/self/exe";
        return 1;
    }
    return 0;
}

static const char *find_in(const char *file, uintptr_t address) {
    const auto *header = reinterpret_cast<const ElfW(Ehdr) *>(file);
    const auto *sections = reinterpret_cast<const ElfW(Shdr) *>(file + header->e_shoff);
    for (int s = 0; s < header->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB) continue;
        const char *names = file + sections[sections[s].sh_link].sh_offset;
        const auto *symbols = reinterpret_cast<const ElfW(Sym) *>(file + sections[s].sh_offset);
        for (size_t i = 0; i < sections[s].sh_size / sizeof *symbols; i++)
            if (symbols[i].st_value == address && ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC)
                return names + symbols[i].st_name;
    }
    return nullptr;
}

// The file stays mapped: names are asked for when the program ends.
const char *symbol_name(const void *function) {
    static thread_local char unnamed[32];
    snprintf(unnamed, sizeof unnamed, "%p", function);
    Object object = {reinterpret_cast<uintptr_t>(function), 0, nullptr};
    if (dl_iterate_phdr(on_object, &object) == 0) return unnamed;
    int fd = open(object.path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) return unnamed;
    void *file = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED) return unnamed;
    const char *name = find_in(static_cast<const char *>(file), object.address - object.base);
    if (name == nullptr) return unnamed;
    int status_code = 0;
    const char *readable = abi::__cxa_demangle(name, nullptr, nullptr, &status_code);
    return readable != nullptr ? readable : name;
}

const char *task_name(const Task &task) {
    return task.kernel != nullptr ? symbol_name(task.kernel) : task.what;
}

} // namespace emulator
