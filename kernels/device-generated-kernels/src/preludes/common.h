// What the texts use of OpenCL C 1.2, for compilers of C++ that know none of it. What differs from one to the other comes
// behind: `__kernel`, `__local`, `barrier`, and BLOCK_, SIZE_ and ITEM_ for each axis.

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long long ulong;
// Of 64 bits, as in OpenCL C, on each system.
#define long long long

// All memory is one address space, and a barrier orders it.
#define __global
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2

// The second and third axis of a grid have up to 65,535 groups. With more of them, all groups are on the first.
#ifdef GROUPS_ON_ONE_AXIS
#define run(...) run(uint groups_0, uint groups_1, __VA_ARGS__)
#define GROUP_0 (BLOCK_0 % groups_0)
#define GROUP_1 (BLOCK_0 / groups_0 % groups_1)
#define GROUP_2 (BLOCK_0 / groups_0 / groups_1)
#else
#define GROUP_0 BLOCK_0
#define GROUP_1 BLOCK_1
#define GROUP_2 BLOCK_2
#endif
#define get_group_id(axis) ((ulong)GROUP_##axis)
#define get_local_size(axis) ((ulong)SIZE_##axis)
#define get_local_id(axis) ((ulong)ITEM_##axis)
#define get_global_id(axis) ((ulong)GROUP_##axis * SIZE_##axis + ITEM_##axis)

// The same bits as another type of their size.
template <typename To, typename From> To with_bits_of(From x) {
    static_assert(sizeof(To) == sizeof(From), "types of one size");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
#define as_int(x) with_bits_of<int>(x)
#define as_uint(x) with_bits_of<uint>(x)
#define as_long(x) with_bits_of<long>(x)
#define as_ulong(x) with_bits_of<ulong>(x)
#define as_float(x) with_bits_of<float>(x)
#define as_double(x) with_bits_of<double>(x)

// A number of 16 bits, which is computed as `float`.
struct half {
    ushort bits;
};
