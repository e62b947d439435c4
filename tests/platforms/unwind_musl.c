/* The functions of glibc that GCC 12's unwinder (libgcc_eh.a) needs, for musl.

   It finds unwind tables by `_dl_find_object` alone, which musl lacks; the structure is glibc's
   `struct dl_find_object` on x86_64. */

#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <string.h>

struct object {
    unsigned long long flags;
    void *start, *end, *link_map, *eh_frame;
    unsigned long long reserved[7];
};

struct search {
    unsigned long address;
    struct object *found;
};

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
    struct search *search = data;
    unsigned long start = 0, end = 0;
    void *eh_frame = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        unsigned long at = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && search->address >= at && search->address < at + header->p_memsz) {
            start = at;
            end = at + header->p_memsz;
        }
        if (header->p_type == PT_GNU_EH_FRAME)
            eh_frame = (void *)at;
    }
    if (!end || !eh_frame)
        return 0;
    search->found->start = (void *)start;
    search->found->end = (void *)end;
    search->found->eh_frame = eh_frame;
    return 1;
}

int _dl_find_object(void *address, void *result) {
    struct search search = {(unsigned long)address, result};
    memset(result, 0, sizeof(struct object));
    return dl_iterate_phdr(visit, &search) == 1 ? 0 : -1;
}

/* The unwinder refers to these weakly, which takes nothing out of libc.a. */
__attribute__((used)) static void *const needed[] = {
    (void *)pthread_once,        (void *)pthread_mutex_lock,  (void *)pthread_mutex_unlock,
    (void *)pthread_getspecific, (void *)pthread_setspecific, (void *)pthread_key_create,
};
