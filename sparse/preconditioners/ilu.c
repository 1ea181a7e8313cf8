/* Incomplete factors of a block of rows on its own pattern, and solving with them; ilu.py has the
   same in Python. Numbers are double, or pairs of double. */

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

typedef double _Complex complex_t;

/* Y. Saad, Iterative Methods for Sparse Linear Systems (2003), Algorithm 10.4: rows one after the
   other, entries outside of the pattern left out. -1, or the row whose pivot is zero or missing. */
#define FACTOR(name, T)                                                                            \
    static int64_t name(const int64_t *begin, const int64_t *to, T *a, int64_t n, int64_t *pivot,  \
                        int64_t *place)                                                            \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            place[i] = -1;                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                          \
            pivot[i] = -1;                                                                         \
            for (int64_t k = begin[i]; k < begin[i + 1]; k++) {                                    \
                place[to[k]] = k;                                                                  \
                if (to[k] == i)                                                                    \
                    pivot[i] = k;                                                                  \
            }                                                                                      \
            for (int64_t k = begin[i]; k < begin[i + 1] && to[k] < i; k++) {                       \
                int64_t row = to[k];                                                               \
                T factor = a[k] /= a[pivot[row]];                                                  \
                for (int64_t m = pivot[row] + 1; m < begin[row + 1]; m++)                          \
                    if (place[to[m]] >= 0)                                                         \
                        a[place[to[m]]] -= factor * a[m];                                          \
            }                                                                                      \
            for (int64_t k = begin[i]; k < begin[i + 1]; k++)                                      \
                place[to[k]] = -1;                                                                 \
            if (pivot[i] < 0 || !(a[pivot[i]] != 0))                                               \
                return i;                                                                          \
        }                                                                                          \
        return -1;                                                                                 \
    }

/* x = U^-1 L^-1 x. */
#define SOLVE(name, T)                                                                             \
    static void name(const int64_t *begin, const int64_t *to, const T *a, int64_t n,               \
                     const int64_t *pivot, T *x)                                                   \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T sum = x[i];                                                                          \
            for (int64_t k = begin[i]; k < pivot[i]; k++)                                          \
                sum -= a[k] * x[to[k]];                                                            \
            x[i] = sum;                                                                            \
        }                                                                                          \
        for (int64_t i = n - 1; i >= 0; i--) {                                                     \
            T sum = x[i];                                                                          \
            for (int64_t k = pivot[i] + 1; k < begin[i + 1]; k++)                                  \
                sum -= a[k] * x[to[k]];                                                            \
            x[i] = sum / a[pivot[i]];                                                              \
        }                                                                                          \
    }

FACTOR(factor_real, double)
FACTOR(factor_complex, complex_t)
SOLVE(solve_real, double)
SOLVE(solve_complex, complex_t)

enum { BEGIN, TO, VALUES, PIVOT, VECTOR, ARRAYS };

/* The five arrays, whose lengths fit each other; NULL with an error else. */
static int taken(PyObject *args, Py_buffer *held, int64_t *n, int *is_complex)
{
    if (!PyArg_ParseTuple(args, "y*y*w*w*w*", &held[BEGIN], &held[TO], &held[VALUES], &held[PIVOT],
                          &held[VECTOR]))
        return -1;
    int64_t entries = held[TO].len / 8;
    *n = held[PIVOT].len / 8;
    *is_complex = entries && held[VALUES].len == 16 * entries;
    if (held[BEGIN].len == 8 * (*n + 1) && (*is_complex || held[VALUES].len == 8 * entries))
        return 0;
    PyErr_SetString(PyExc_ValueError, "arrays of other lengths expected");
    for (int i = 0; i < ARRAYS; i++)
        PyBuffer_Release(&held[i]);
    return -1;
}

/* factor(indptr, indices, values, pivot, place) -> the row without a pivot, or -1 */
static PyObject *factor(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer held[ARRAYS];
    int64_t n, bad = 0;
    int is_complex;
    if (taken(args, held, &n, &is_complex) < 0)
        return NULL;
    void *place = held[VECTOR].buf;
    Py_BEGIN_ALLOW_THREADS
    bad = is_complex ? factor_complex(held[BEGIN].buf, held[TO].buf, held[VALUES].buf, n,
                                      held[PIVOT].buf, place)
                     : factor_real(held[BEGIN].buf, held[TO].buf, held[VALUES].buf, n,
                                   held[PIVOT].buf, place);
    Py_END_ALLOW_THREADS
    for (int i = 0; i < ARRAYS; i++)
        PyBuffer_Release(&held[i]);
    return PyLong_FromLongLong(bad);
}

/* solve(indptr, indices, values, pivot, x): x becomes the solution */
static PyObject *solve(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer held[ARRAYS];
    int64_t n;
    int is_complex;
    if (taken(args, held, &n, &is_complex) < 0)
        return NULL;
    if (held[VECTOR].len == n * (is_complex ? 16 : 8)) {
        Py_BEGIN_ALLOW_THREADS
        if (is_complex)
            solve_complex(held[BEGIN].buf, held[TO].buf, held[VALUES].buf, n, held[PIVOT].buf,
                          held[VECTOR].buf);
        else
            solve_real(held[BEGIN].buf, held[TO].buf, held[VALUES].buf, n, held[PIVOT].buf,
                       held[VECTOR].buf);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_ValueError, "a vector of another length expected");
    }
    for (int i = 0; i < ARRAYS; i++)
        PyBuffer_Release(&held[i]);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"factor", factor, METH_VARARGS, NULL},
    {"solve", solve, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* nothing here is shared but what never changes */
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "onesided.sparse.preconditioners._ilu", .m_size = 0,
    .m_methods = functions, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__ilu(void) { return PyModuleDef_Init(&definition); }
