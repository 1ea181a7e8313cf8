/* Aggregates of the nodes of a graph, for algebraic multigrid; amg.py has the same in Python. */

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* Nodes become roots one after the other, unless a root is a neighbor, or a neighbor's neighbor.
   Neighbors get the number of their root; then the others that of the first of their neighbors
   that has one. */
#define AGGREGATE(name, integer)                                                                   \
    static int64_t name(const integer *begin, const integer *to, const uint8_t *strong, int64_t n, \
                        int64_t *label)                                                            \
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
        return count;                                                                              \
    }

AGGREGATE(aggregate32, int32_t)
AGGREGATE(aggregate64, int64_t)

/* aggregate(indptr, indices, strong, label) -> how many there are

   A symmetric pattern; where `strong` is zero an entry does not count. */
static PyObject *aggregate(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer begin, to, strong, label;
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &begin, &to, &strong, &label))
        return NULL;
    int64_t count = -1, n = label.len / 8, entries = strong.len;
    int wide = begin.itemsize == 8;
    if (begin.itemsize != to.itemsize || (begin.itemsize != 4 && !wide) ||
        begin.len / begin.itemsize != n + 1 || to.len / to.itemsize != entries) {
        PyErr_SetString(PyExc_ValueError, "arrays of other lengths expected");
    } else {
        Py_BEGIN_ALLOW_THREADS
        count = wide ? aggregate64(begin.buf, to.buf, strong.buf, n, label.buf)
                     : aggregate32(begin.buf, to.buf, strong.buf, n, label.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&begin);
    PyBuffer_Release(&to);
    PyBuffer_Release(&strong);
    PyBuffer_Release(&label);
    return count < 0 ? NULL : PyLong_FromLongLong(count);
}

static PyMethodDef functions[] = {
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
    PyModuleDef_HEAD_INIT, .m_name = "onesided.sparse.preconditioners._aggregates", .m_size = 0,
    .m_methods = functions, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__aggregates(void) { return PyModuleDef_Init(&definition); }
