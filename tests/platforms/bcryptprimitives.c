/* The one function of bcryptprimitives.dll that Rust's standard library imports, for Wine 8, which lacks
   that DLL. */

#include <windows.h>

#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T length) {
    while (length) {
        ULONG part = length > 0x10000000 ? 0x10000000 : (ULONG)length;
        if (!RtlGenRandom(buffer, part))
            return FALSE;
        buffer += part;
        length -= part;
    }
    return TRUE;
}
