/* Reductions of two arrays, element by element: to[i] = left[i] op right[i].

   `to` may be the same memory as `left` or `right`, element for element, not shifted. The loops are
   written so that a compiler can use its vector units. */

#include "core.h"
#include <complex.h>
#include <stdbool.h>

typedef struct { float value; int index; } float_int;
typedef struct { double value; int index; } double_int;
typedef struct { long value; int index; } long_int;
typedef struct { int value; int index; } two_int;
typedef struct { short value; int index; } short_int;

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(enable)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

#define LOOP(name, type, expression) \
    static void name(void *to, const void *left, const void *right, Py_ssize_t count) \
    { \
        type *t = to; \
        const type *x = left, *y = right; \
        INDEPENDENT \
        for (Py_ssize_t i = 0; i < count; i++) { \
            const type a = x[i], b = y[i]; \
            t[i] = expression; \
        } \
    }

#define ARITHMETIC(type, name) \
    LOOP(sum_##name, type, (type)(a + b)) \
    LOOP(prod_##name, type, (type)(a * b))
#define ORDERED(type, name) \
    LOOP(max_##name, type, a > b ? a : b) \
    LOOP(min_##name, type, a < b ? a : b)
#define LOGICAL(type, name) \
    LOOP(land_##name, type, (type)(a && b)) \
    LOOP(lor_##name, type, (type)(a || b)) \
    LOOP(lxor_##name, type, (type)(!a != !b))
#define BITWISE(type, name) \
    LOOP(band_##name, type, (type)(a & b)) \
    LOOP(bor_##name, type, (type)(a | b)) \
    LOOP(bxor_##name, type, (type)(a ^ b))
#define INTEGER(type, name) \
    ARITHMETIC(type, name) ORDERED(type, name) LOGICAL(type, name) BITWISE(type, name)
/* What is not a number stays: a blow-up on one rank is seen by all, in any order of the ranks. */
#define FLOATING(type, name) \
    ARITHMETIC(type, name) \
    LOOP(max_##name, type, a > b || a != a ? a : b) \
    LOOP(min_##name, type, a < b || a != a ? a : b)
/* MPI-4.1 section 6.9.4: of equal values the lower index. */
#define PAIR(type, name) \
    LOOP(maxloc_##name, type, \
         a.value > b.value || (a.value == b.value && a.index < b.index) ? a : b) \
    LOOP(minloc_##name, type, \
         a.value < b.value || (a.value == b.value && a.index < b.index) ? a : b)
/* Products as the interpreter in Python has them; C's own look for infinities where NaN came out,
   which differs, and takes several times as long. */
#define COMPLEX(type, part, name) \
    LOOP(sum_##name, type, a + b) \
    static void prod_##name(void *to, const void *left, const void *right, Py_ssize_t count) \
    { \
        part *t = to; \
        const part *x = left, *y = right; \
        INDEPENDENT \
        for (Py_ssize_t i = 0; i < 2 * count; i += 2) { \
            const part a = x[i], b = x[i + 1], c = y[i], d = y[i + 1]; \
            t[i] = a * c - b * d; \
            t[i + 1] = a * d + b * c; \
        } \
    }

INTEGER(int8_t, i8)
INTEGER(int16_t, i16)
INTEGER(int32_t, i32)
INTEGER(int64_t, i64)
INTEGER(uint8_t, u8)
INTEGER(uint16_t, u16)
INTEGER(uint32_t, u32)
INTEGER(uint64_t, u64)
FLOATING(float, f32)
FLOATING(double, f64)
FLOATING(long double, f80)
COMPLEX(float complex, float, c64)
COMPLEX(double complex, double, c128)
LOGICAL(bool, flag)
PAIR(float_int, float_int)
PAIR(double_int, double_int)
PAIR(long_int, long_int)
PAIR(two_int, two_int)
PAIR(short_int, short_int)

/* Operations and types in the order of their numbers, which collectives/reduction/folds.py has;
   what an operation does not take is NULL. */
enum { OPERATIONS = 12, FLAG = 13, PAIRS = 14, TYPES = 19 };

#define INTEGERS(op) op##_i8, op##_i16, op##_i32, op##_i64, op##_u8, op##_u16, op##_u32, op##_u64
#define REALS(op) INTEGERS(op), op##_f32, op##_f64, op##_f80
#define NUMBERS(op) REALS(op), op##_c64, op##_c128
#define TRUTHS(op) INTEGERS(op), [FLAG] = op##_flag
#define PLACES(op) \
    [PAIRS] = op##_float_int, op##_double_int, op##_long_int, op##_two_int, op##_short_int

static const Fold folds[OPERATIONS][TYPES] = {
    {NUMBERS(sum)}, {NUMBERS(prod)}, {REALS(max)}, {REALS(min)},
    {TRUTHS(land)}, {TRUTHS(lor)}, {TRUTHS(lxor)},
    {INTEGERS(band)}, {INTEGERS(bor)}, {INTEGERS(bxor)},
    {PLACES(maxloc)}, {PLACES(minloc)},
};

Fold find_fold(int operation, int type)
{
    if (operation < 0 || operation >= OPERATIONS || type < 0 || type >= TYPES)
        return NULL;
    return folds[operation][type];
}

/* fold_exists(operation, type): whether the compiled core can carry it out. */
static PyObject *fold_exists(PyObject *Py_UNUSED(module), PyObject *args)
{
    int operation, type;
    if (!PyArg_ParseTuple(args, "ii", &operation, &type))
        return NULL;
    return PyBool_FromLong(find_fold(operation, type) != NULL);
}

static PyMethodDef functions[] = {
    {"fold_exists", fold_exists, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_folds(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
