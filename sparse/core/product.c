/* The compiled product of a sparse matrix: rows that need no ghosts, then those that do.

   x comes in two parts, own and ghost, which lie where they are: the caller's x, and what the
   neighbors have written. Interior rows can be multiplied while the ghosts are coming, and every
   entry of y is written once. */

#include "product.h"
#include <structmember.h>

/* Products of fewer entries keep the interpreter lock: getting it back from a thread that computes in
   Python takes up to 5 ms. */
enum { ALONE = 1 << 16 };

enum { INTERIOR, BOUNDARY, SETS };

typedef struct {
    PyObject_HEAD
    Csr csr;
    Py_buffer held[3];       /* of row pointers, columns and values */
    Runs runs[SETS];
    int sliced;
    Slices slices[SETS];
    MultiplySlices *multiply;
} Product;

static int append_run(Runs *runs, Py_ssize_t from, Py_ssize_t to, Py_ssize_t *room)
{
    if (runs->count == *room) {
        *room = 2 * *room + 16;
        Py_ssize_t *ends = realloc(runs->ends, 2 * (size_t)*room * sizeof *ends);
        if (ends == NULL)
            return -1;
        runs->ends = ends;
    }
    runs->ends[2 * runs->count] = from;
    runs->ends[2 * runs->count++ + 1] = to;
    return 0;
}

/* Tell rows without ghosts from others. 0, -1 without memory, 1 where rows or columns are wrong. */
static int split_rows(Product *self, int64_t entries)
{
    const Csr *csr = &self->csr;
    Py_ssize_t room[SETS] = {0, 0}, begun = 0;
    int64_t from = index_at(csr->starts, csr->wide, 0);
    int before = -1;
    if (from < 0)
        return 1;
    for (Py_ssize_t row = 0; row < csr->rows; row++) {
        int64_t to = index_at(csr->starts, csr->wide, row + 1), most = -1, least = 0;
        if (to < from || to > entries)
            return 1;
        for (int64_t place = from; place < to; place++) {
            int64_t column = index_at(csr->columns, csr->wide, place);
            most = column > most ? column : most;
            least = column < least ? column : least;
        }
        if (least < 0 || most >= csr->own + csr->ghosts)
            return 1;
        int set = most >= csr->own ? BOUNDARY : INTERIOR;
        if (set != before) {
            if (row > begun && append_run(&self->runs[before], begun, row, &room[before]) < 0)
                return -1;
            begun = row;
            before = set;
        }
        self->runs[set].entries += to - from;
        from = to;
    }
    if (csr->rows > begun)
        return append_run(&self->runs[before], begun, csr->rows, &room[before]);
    return 0;
}

static int set_up(Product *self, int64_t entries)
{
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = split_rows(self, entries);
    for (int set = 0; !failed && self->sliced && set < SETS; set++)
        failed = make_slices(&self->slices[set], &self->csr, &self->runs[set]);
    Py_END_ALLOW_THREADS
    if (failed < 0)
        PyErr_NoMemory();
    if (failed > 0)
        PyErr_SetString(PyExc_ValueError, "rows do not ascend, or columns are out of range");
    return failed ? -1 : 0;
}

static PyObject *product_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named))
{
    static const Py_ssize_t items[KINDS] = {4, 8, 8, 16};
    PyObject *arrays[3];
    Csr csr = {0};
    int sliced, units, loads;
    if (!PyArg_ParseTuple(args, "inniiiOOO", &csr.kind, &csr.own, &csr.ghosts, &sliced, &units,
                          &loads, &arrays[0], &arrays[1], &arrays[2]))
        return NULL;
    if (csr.kind < 0 || csr.kind >= KINDS || csr.own < 0 || csr.ghosts < 0 ||
        (sliced && csr.kind > F8))
        return PyErr_Format(PyExc_ValueError, "no product of kind %d", csr.kind);
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Product *self = (Product *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    for (int i = 0; i < 3; i++)
        if (PyObject_GetBuffer(arrays[i], &self->held[i], PyBUF_ND) < 0)
            goto failed;
    csr.item = items[csr.kind];
    csr.wide = self->held[0].itemsize == 8;
    csr.rows = self->held[0].len / self->held[0].itemsize - 1;
    csr.starts = self->held[0].buf;
    csr.columns = self->held[1].buf;
    csr.values = self->held[2].buf;
    Py_ssize_t entries = self->held[2].len / csr.item;
    if (csr.rows < 0 || self->held[1].itemsize != self->held[0].itemsize ||
        self->held[2].itemsize != csr.item ||
        self->held[1].len / self->held[1].itemsize != entries ||
        (sliced && (csr.rows > INT32_MAX || csr.own + csr.ghosts > INT32_MAX))) {
        PyErr_SetString(PyExc_ValueError, "arrays that do not fit each other");
        goto failed;
    }
    csr.units = vector_units(units);
    self->csr = csr;
    self->sliced = sliced;
    self->multiply = sliced ? slices_multiplier(csr.kind, csr.units, loads) : NULL;
    if (set_up(self, entries) < 0)
        goto failed;
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static void product_dealloc(Product *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (int set = 0; set < SETS; set++) {
        free(self->runs[set].ends);
        free_slices(&self->slices[set]);
    }
    for (int i = 0; i < 3; i++)
        PyBuffer_Release(&self->held[i]);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* The rows of a set, for k vectors beside each other. */
static void run_set(Product *self, int set, Py_ssize_t k, const char *own, const char *ghosts,
                    char *y)
{
    if (self->sliced && k == 1)
        self->multiply(&self->slices[set], own, ghosts, y);
    else
        multiply_rows(&self->csr, &self->runs[set], set == BOUNDARY, k, own, ghosts, y);
}

/* y = A x for the sets from `set` on, up to `last`. The arguments are x, ghosts and y if only boundary
   rows are multiplied; else x and y, and ghosts lie behind x where they are needed. */
static PyObject *multiplied(Product *self, PyObject *args, int set, int last)
{
    PyObject *x, *y, *ghosts = NULL, *answer = NULL;
    if (set == BOUNDARY ? !PyArg_ParseTuple(args, "OOO", &x, &ghosts, &y)
                        : !PyArg_ParseTuple(args, "OO", &x, &y))
        return NULL;
    PyObject *arrays[3] = {x, y, ghosts};
    Py_buffer views[3];
    int held = 0, wanted = ghosts == NULL ? 2 : 3;
    for (; held < wanted; held++)
        if (PyObject_GetBuffer(arrays[held], &views[held],
                               held == 1 ? PyBUF_ND | PyBUF_WRITABLE : PyBUF_ND) < 0)
            goto done;
    const Csr *csr = &self->csr;
    Py_ssize_t k = views[0].ndim == 2 ? views[0].shape[1] : 1, width = k * csr->item;
    Py_ssize_t behind = ghosts == NULL && last == BOUNDARY ? csr->ghosts : 0;
    if (views[0].len != (csr->own + behind) * width || views[1].len != csr->rows * width ||
        (ghosts != NULL && views[2].len != csr->ghosts * width)) {
        PyErr_SetString(PyExc_ValueError, "vectors that do not fit the rows");
        goto done;
    }
    const char *own = views[0].buf;
    const char *beyond = ghosts != NULL ? views[2].buf : own + csr->own * width;
    Py_ssize_t entries = 0;
    for (int each = set; each <= last; each++)
        entries += self->runs[each].entries * k;
    PyThreadState *state = entries < ALONE ? NULL : PyEval_SaveThread();
    for (; set <= last; set++)
        run_set(self, set, k, own, beyond, views[1].buf);
    if (state != NULL)
        PyEval_RestoreThread(state);
    answer = Py_NewRef(Py_None);
done:
    while (held > 0)
        PyBuffer_Release(&views[--held]);
    return answer;
}

/* product(x, y): x is [owned | ghost]. */
static PyObject *product_call(PyObject *self, PyObject *args, PyObject *Py_UNUSED(named))
{
    return multiplied((Product *)self, args, INTERIOR, BOUNDARY);
}

/* interior(x, y): the rows of y that need no ghosts. */
static PyObject *product_interior(PyObject *self, PyObject *args)
{
    return multiplied((Product *)self, args, INTERIOR, INTERIOR);
}

/* boundary(x, ghosts, y): all others. */
static PyObject *product_boundary(PyObject *self, PyObject *args)
{
    return multiplied((Product *)self, args, BOUNDARY, BOUNDARY);
}

/* Steps of a script: k vectors, whose x, ghosts and y have been checked when it was made. */
static void interior_work(void *self, Py_ssize_t k, char *const *at)
{
    run_set(self, INTERIOR, k, at[0], NULL, at[1]);
}

static void boundary_work(void *self, Py_ssize_t k, char *const *at)
{
    run_set(self, BOUNDARY, k, at[0], at[1], at[2]);
}

static const Named product_works[] = {
    {"interior", interior_work}, {"boundary", boundary_work}, {NULL, NULL},
};

static int add_addresses(PyObject *addresses, const Named *named)
{
    for (; named->name != NULL; named++) {
        PyObject *address = PyLong_FromVoidPtr((void *)(uintptr_t)named->work);
        if (address == NULL || PyDict_SetItemString(addresses, named->name, address) < 0) {
            Py_XDECREF(address);
            return -1;
        }
        Py_DECREF(address);
    }
    return 0;
}

static PyMethodDef product_methods[] = {
    {"interior", product_interior, METH_VARARGS, NULL},
    {"boundary", product_boundary, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot product_slots[] = {
    {Py_tp_new, product_new},
    {Py_tp_dealloc, product_dealloc},
    {Py_tp_call, product_call},
    {Py_tp_methods, product_methods},
    {0, NULL},
};

static PyType_Spec product_spec = {
    .name = "onesided.sparse._product.Product",
    .basicsize = sizeof(Product),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = product_slots,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "onesided.sparse._product", .m_size = -1,
};

PyMODINIT_FUNC PyInit__product(void)
{
    PyObject *module = PyModule_Create(&definition), *addresses = PyDict_New();
    PyObject *type = module == NULL ? NULL : PyType_FromSpec(&product_spec);
    if (type == NULL || addresses == NULL || add_addresses(addresses, product_works) < 0 ||
        add_addresses(addresses, vector_works) < 0 ||
        PyModule_AddObjectRef(module, "Product", type) < 0 ||
        PyModule_AddObjectRef(module, "ADDRESSES", addresses) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    Py_XDECREF(addresses);
    return module;
}
