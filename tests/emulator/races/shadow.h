/* shadow.h: the last accesses to each byte that a kernel accesses. Pages of cells are allocated at
 * the first access and kept for the next kernels: a moment is never reused, so old ones are
 * recognized.
 */
#ifndef TESTS_EMULATOR_RACES_SHADOW_H
#define TESTS_EMULATOR_RACES_SHADOW_H

#include <cstdint>
#include <memory>
#include <unordered_map>

namespace emulator {

// A moment: a thread between two of its barriers, fences and __syncwarps (races.cpp). 0: none.
enum : uint32_t { ATOMIC = 1u << 31 }; // with a cell's write: it was an atomic

struct Cell {                         // of one byte
    uint32_t write, read, other_read; // moments; other_read: by another thread than read
    uint32_t write_at, read_at;       // low bits of the code's addresses
};

class Shadow {
  public:
    enum : uintptr_t { PAGE = 4096 };

    // The cells from the address to the end of its page.
    Cell *cells(uintptr_t address) {
        const uintptr_t number = address / PAGE;
        Recent &recent = recents[number % RECENTS];
        if (recent.cells == nullptr || recent.number != number) recent = {number, find(number)};
        return recent.cells + address % PAGE;
    }
    size_t count() const { return pages.size(); }
    void clear() {
        for (auto &recent : recents) recent = {};
        pages.clear();
    }

  private:
    enum { RECENTS = 256 };
    struct Recent {
        uintptr_t number;
        Cell *cells;
    };
    Cell *find(uintptr_t number) {
        auto &page = pages[number];
        if (page == nullptr) page = std::make_unique<Cell[]>(PAGE);
        return page.get();
    }
    std::unordered_map<uintptr_t, std::unique_ptr<Cell[]>> pages;
    Recent recents[RECENTS] = {};
};

} // namespace emulator

#endif
