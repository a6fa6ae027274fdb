// CUDA's vector types, aligned as there.
#pragma once

#define EMU_VECTORS(NAME, TYPE, A2, A4)                                                                                        \
    struct NAME##1 { TYPE x; };                                                                                                \
    struct __attribute__((aligned(A2))) NAME##2 { TYPE x, y; };                                                                \
    struct NAME##3 { TYPE x, y, z; };                                                                                          \
    struct __attribute__((aligned(A4))) NAME##4 { TYPE x, y, z, w; };                                                          \
    inline NAME##1 make_##NAME##1(TYPE x) { return {x}; }                                                                      \
    inline NAME##2 make_##NAME##2(TYPE x, TYPE y) { return {x, y}; }                                                           \
    inline NAME##3 make_##NAME##3(TYPE x, TYPE y, TYPE z) { return {x, y, z}; }                                                \
    inline NAME##4 make_##NAME##4(TYPE x, TYPE y, TYPE z, TYPE w) { return {x, y, z, w}; }

EMU_VECTORS(char, signed char, 2, 4)
EMU_VECTORS(uchar, unsigned char, 2, 4)
EMU_VECTORS(short, short, 4, 8)
EMU_VECTORS(ushort, unsigned short, 4, 8)
EMU_VECTORS(int, int, 8, 16)
EMU_VECTORS(uint, unsigned int, 8, 16)
EMU_VECTORS(long, long, 16, 16)
EMU_VECTORS(ulong, unsigned long, 16, 16)
EMU_VECTORS(longlong, long long, 16, 16)
EMU_VECTORS(ulonglong, unsigned long long, 16, 16)
EMU_VECTORS(float, float, 8, 16)
EMU_VECTORS(double, double, 16, 16)
#undef EMU_VECTORS
