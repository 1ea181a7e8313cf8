/* What the files of the compiled product share. */

#ifndef ONESIDED_PRODUCT_H
#define ONESIDED_PRODUCT_H

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__) && defined(__GNUC__)
#define VECTORS 1
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512vl,avx2,fma")))
#endif

/* Vector units at hand, of these: 0 none, 1 up to AVX2, 2 up to AVX-512 (slices.c). */
int vector_units(int most);

/* Numbers of the types of entries; x and y may lie at any address. */
enum { F4, F8, C8, C16, KINDS };
typedef float f4 __attribute__((aligned(1), may_alias));
typedef double f8 __attribute__((aligned(1), may_alias));
typedef struct { float re, im; } __attribute__((packed, may_alias)) c8;
typedef struct { double re, im; } __attribute__((packed, may_alias)) c16;

/* Compressed rows whose columns are [owned | ghost], in the memory of their maker. */
typedef struct {
    int kind, wide;          /* type of the entries; whether indices have 64 bits */
    int units;               /* vector units that blocks of vectors are multiplied with */
    Py_ssize_t item;         /* bytes of an entry */
    Py_ssize_t rows, own, ghosts;
    const char *starts, *columns, *values;
} Csr;

static inline int64_t index_at(const char *indices, int wide, Py_ssize_t place)
{
    return wide ? ((const int64_t *)indices)[place] : ((const int32_t *)indices)[place];
}

/* Rows from, to, from, to, ... */
typedef struct {
    Py_ssize_t *ends, count, entries;
} Runs;

/* y = A x for the rows of some runs, k vectors beside each other (rows.c). */
void multiply_rows(const Csr *csr, const Runs *runs, int boundary, Py_ssize_t k, const char *own,
                   const char *ghosts, char *y);

/* Rows in slices of 8, entry by entry, those of like lengths together (slices.c). */
enum { LANES = 8 };

/* Columns of 32 or of 16 bits, or, of 8 that follow each other, the first alone. */
enum { WIDE, NARROW, DENSE, FORMS };

typedef struct {
    int32_t base[2];         /* of own and ghost columns: what those of 16 bits are added to */
    int32_t full[2];         /* steps in which every lane has an entry, */
    int32_t ragged[2];       /* and steps after them in which some have none */
    int32_t row;             /* the first row */
    uint8_t lanes;           /* rows in the slice */
    uint8_t form;            /* of the numbers of columns */
    uint8_t straight;        /* rows follow each other */
    uint8_t along;           /* one long row, over all lanes */
} Slice;

typedef struct {
    Py_ssize_t count;
    Slice *slices;
    int32_t *numbers;        /* of the rows of each slice, at most LANES */
    char *columns, *values;
} Slices;

typedef void MultiplySlices(const Slices *slices, const void *own, const void *ghosts, void *y);

/* 0, or -1 without memory. Real entries, and numbers of rows and columns of 31 bits, only. */
int make_slices(Slices *made, const Csr *csr, const Runs *runs);
void free_slices(Slices *slices);
/* `loads`: whether elements of x are loaded one by one; below zero: if that is faster here. */
MultiplySlices *slices_multiplier(int kind, int units, int loads);

/* A step of a script (collectives/scripts.py): of an object, a number, and the addresses of its places.
   By name and address; those of vectors.c end with a row of zeros. */
typedef void Work(void *handle, Py_ssize_t number, char *const *at);
typedef struct {
    const char *name;
    Work *work;
} Named;
extern const Named vector_works[];

#endif
