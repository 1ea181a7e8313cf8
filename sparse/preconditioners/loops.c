/* Loops of preconditioners: incomplete factors of a block of rows on its own pattern, solving with
   them, and aggregates of the nodes of a graph. blocks.py and amg.py have the same in Python. */

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* -- factors: numbers are double, or pairs of double ------------------------------------------- */

typedef double _Complex complex_t;

enum { BEGIN, TO, VALUES, PIVOT, VECTOR, ARRAYS };

typedef int64_t (*Work)(const Py_buffer *arrays, int64_t n);

/* Y. Saad, Iterative Methods for Sparse Linear Systems (2003), Algorithm 10.4: rows one after the
   other, entries outside of the pattern left out. The vector is room for the place of each column.
   -1, or the row whose pivot is zero or missing. */
#define FACTOR(name, T)                                                                            \
    static int64_t name(const Py_buffer *arrays, int64_t n)                                        \
    {                                                                                              \
        const int64_t *begin = arrays[BEGIN].buf, *to = arrays[TO].buf;                            \
        int64_t *pivot = arrays[PIVOT].buf, *place = arrays[VECTOR].buf;                           \
        T *a = arrays[VALUES].buf;                                                                 \
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

/* x = U^-1 L^-1 x, x being the vector. */
#define SOLVE(name, T)                                                                             \
    static int64_t name(const Py_buffer *arrays, int64_t n)                                        \
    {                                                                                              \
        const int64_t *begin = arrays[BEGIN].buf, *to = arrays[TO].buf;                            \
        const int64_t *pivot = arrays[PIVOT].buf;                                                  \
        const T *a = arrays[VALUES].buf;                                                           \
        T *x = arrays[VECTOR].buf;                                                                 \
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
        return -1;                                                                                 \
    }

FACTOR(factor_real, double)
FACTOR(factor_complex, complex_t)
SOLVE(solve_real, double)
SOLVE(solve_complex, complex_t)

/* What the loop for values of this kind returns; an error where arrays do not fit each other. */
static PyObject *called(PyObject *args, Work of_real, Work of_complex, int vector_of_values)
{
    Py_buffer held[ARRAYS];
    if (!PyArg_ParseTuple(args, "y*y*w*w*w*", &held[BEGIN], &held[TO], &held[VALUES], &held[PIVOT],
                          &held[VECTOR]))
        return NULL;
    int64_t n = held[PIVOT].len / 8, entries = held[TO].len / 8, found = 0;
    int is_complex = entries && held[VALUES].len == 16 * entries, size = is_complex ? 16 : 8;
    int fits = held[BEGIN].len == 8 * (n + 1) && held[VALUES].len == size * entries &&
               held[VECTOR].len == n * (vector_of_values ? size : 8);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        found = (is_complex ? of_complex : of_real)(held, n);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_ValueError, "arrays of other lengths expected");
    }
    for (int i = 0; i < ARRAYS; i++)
        PyBuffer_Release(&held[i]);
    return fits ? PyLong_FromLongLong(found) : NULL;
}

/* factor(indptr, indices, values, pivot, place) -> the row without a pivot, or -1 */
static PyObject *factor(PyObject *Py_UNUSED(module), PyObject *args)
{
    return called(args, factor_real, factor_complex, 0);
}

/* solve(indptr, indices, values, pivot, x): x becomes the solution */
static PyObject *solve(PyObject *Py_UNUSED(module), PyObject *args)
{
    return called(args, solve_real, solve_complex, 1);
}

/* -- aggregates -------------------------------------------------------------------------------- */

/* Nodes become roots one after the other, unless a root is a neighbor, or a neighbor's neighbor.
   Neighbors get the number of their root; then the others that of the first of their neighbors
   that has one. */
#define AGGREGATE(name, integer)                                                                   \
    static void name(const integer *begin, const integer *to, const uint8_t *strong, int64_t n,    \
                     int64_t *label)                                                               \
    {                                                                                              \
        int64_t count = 0;                                                                         \
        for (int64_t i = 0; i < n; i++)                                                            \
            label[i] = -1;                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                          \
            int taken = label[i] >= 0;                                                             \
            for (integer k = begin[i]; !taken && k < begin[i + 1]; k++)                            \
                taken = strong[k] && label[to[k]] >= 0;                                            \
            if (taken)                                                                             \
                continue;                                                                          \
            label[i] = count;                                                                      \
            for (integer k = begin[i]; k < begin[i + 1]; k++)                                      \
                if (strong[k])                                                                     \
                    label[to[k]] = count;                                                          \
            count++;                                                                               \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++)                                                            \
            for (integer k = begin[i]; label[i] == -1 && k < begin[i + 1]; k++)                    \
                if (strong[k] && label[to[k]] >= 0)                                                \
                    label[i] = -2 - label[to[k]];                                                  \
        for (int64_t i = 0; i < n; i++)                                                            \
            if (label[i] < 0)                                                                      \
                label[i] = -2 - label[i];                                                          \
    }

AGGREGATE(aggregate32, int32_t)
AGGREGATE(aggregate64, int64_t)

/* aggregate(indptr, indices, strong, label): the labels become the numbers of aggregates

   A symmetric pattern; where `strong` is zero an entry does not count. */
static PyObject *aggregate(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer begin, to, strong, label;
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &begin, &to, &strong, &label))
        return NULL;
    int64_t n = label.len / 8, entries = strong.len;
    int wide = begin.itemsize == 8;
    if (begin.itemsize != to.itemsize || (begin.itemsize != 4 && !wide) ||
        begin.len / begin.itemsize != n + 1 || to.len / to.itemsize != entries) {
        PyErr_SetString(PyExc_ValueError, "arrays of other lengths expected");
    } else {
        Py_BEGIN_ALLOW_THREADS
        wide ? aggregate64(begin.buf, to.buf, strong.buf, n, label.buf)
             : aggregate32(begin.buf, to.buf, strong.buf, n, label.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&begin);
    PyBuffer_Release(&to);
    PyBuffer_Release(&strong);
    PyBuffer_Release(&label);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"factor", factor, METH_VARARGS, NULL},
    {"solve", solve, METH_VARARGS, NULL},
    {"aggregate", aggregate, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* nothing here is shared but what never changes */
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "onesided.sparse.preconditioners._loops", .m_size = 0,
    .m_methods = functions, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__loops(void) { return PyModuleDef_Init(&definition); }
