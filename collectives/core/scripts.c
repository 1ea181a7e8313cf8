/* Scripts: steps on local data, executed in order by one call. The reference, with the same words,
   is collectives/scripts.py. */

#include "core.h"

enum { MOST_ENDS = 2 };

/* A library's transform of one set of lines: an MKL function, which is variadic and returns a
   status, or an FFTW one. */
typedef long (*Checked)(void *handle, void *source, ...);
typedef void (*Plain)(void *handle, void *source, void *target);

/* An address; or an offset from the array that is given as this end, from 0, when it is run. */
typedef struct {
    int end;
    intptr_t at;
} Place;

typedef struct {
    int op;
    Place to, from;
    Py_ssize_t count;       /* bytes of COPY */
    void *function, *handle;
    int checked;
    double factor;
    PyObject *call;
    Box *box;
} Line;

typedef struct {
    PyObject_HEAD
    Line *lines;
    Py_ssize_t count;
    int alone;              /* long enough to give up the interpreter lock */
    PyObject *keep;         /* what the lines point into */
} Script;

static inline char *resolved(Place place, char *const *ends)
{
    return place.end < 0 ? (char *)place.at : ends[place.end] + place.at;
}

/* Multiply the real numbers of a box. */
static void scale_box(const Box *box, char *to, double factor)
{
    Py_ssize_t at[MOST_AXES] = {0};
    const Axis *axes = box->axis;
    int inner = box->axes - 1;
    Py_ssize_t extent = axes[inner].extent, step = axes[inner].to;
    for (;;) {
        if (box->item == sizeof(double) && step == sizeof(double))
            for (Py_ssize_t i = 0; i < extent; i++)
                ((double *)to)[i] *= factor;
        else if (box->item == sizeof(double))
            for (Py_ssize_t i = 0; i < extent; i++)
                *(double *)(to + i * step) *= factor;
        else if (step == sizeof(float))
            for (Py_ssize_t i = 0; i < extent; i++)
                ((float *)to)[i] *= (float)factor;
        else
            for (Py_ssize_t i = 0; i < extent; i++)
                *(float *)(to + i * step) *= (float)factor;
        int axis = inner - 1;
        for (; axis >= 0; axis--) {
            to += axes[axis].to;
            if (++at[axis] < axes[axis].extent)
                break;
            to -= axes[axis].to * axes[axis].extent;
            at[axis] = 0;
        }
        if (axis < 0)
            return;
    }
}

/* The lines from `first` on up to a call of Python: where that is, or -1 - status of a kernel. */
static Py_ssize_t run_lines(const Script *self, Py_ssize_t first, char *const *ends)
{
    for (Py_ssize_t i = first; i < self->count; i++) {
        const Line *line = &self->lines[i];
        if (line->op == CALL)
            return i;
        char *to = resolved(line->to, ends), *from = resolved(line->from, ends);
        switch (line->op) {
        case COPY:
            memcpy(to, from, (size_t)line->count);
            break;
        case BOX:
            copy_box(line->box, to, from);
            break;
        case SCALE:
            scale_box(line->box, to, line->factor);
            break;
        default:
            if (line->checked) {
                long status = ((Checked)line->function)(line->handle, from, to);
                if (status)
                    return -1 - (status < 0 ? -status : status);
            } else {
                ((Plain)line->function)(line->handle, from, to);
            }
        }
    }
    return self->count;
}

/* script(ends, addresses): arrays, and where their first elements are. */
static PyObject *run_script(PyObject *object, PyObject *args, PyObject *names)
{
    Script *self = (Script *)object;
    PyObject *arrays, *addresses;
    char *ends[MOST_ENDS] = {NULL};
    if (names != NULL && PyDict_Size(names)) {
        PyErr_SetString(PyExc_TypeError, "a script takes no names");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &arrays, &PyTuple_Type, &addresses))
        return NULL;
    if (PyTuple_Size(addresses) != MOST_ENDS || PyTuple_Size(arrays) != MOST_ENDS)
        return PyErr_Format(PyExc_ValueError, "a script has %d ends", MOST_ENDS);
    for (int i = 0; i < MOST_ENDS; i++)
        ends[i] = PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i));
    if (PyErr_Occurred())
        return NULL;
    Py_ssize_t here = 0;
    while (here < self->count) {
        if (self->alone) {
            Py_BEGIN_ALLOW_THREADS
            here = run_lines(self, here, ends);
            Py_END_ALLOW_THREADS
        } else {
            here = run_lines(self, here, ends);
        }
        if (here < 0)
            return PyErr_Format(PyExc_RuntimeError, "a kernel failed with status %zd", -1 - here);
        if (here < self->count) {
            PyObject *said = PyObject_CallObject(self->lines[here].call, arrays);
            if (said == NULL)
                return NULL;
            Py_DECREF(said);
            here++;
        }
    }
    Py_RETURN_NONE;
}

static int read_line(Line *line, PyObject *fields)
{
    long long to, from;
    unsigned long long function, handle;
    PyObject *call, *shape, *strides, *others;
    Py_ssize_t item;
    int op = line->op = (int)PyLong_AsLong(PyTuple_GetItem(fields, 0));
    if (PyErr_Occurred())
        return -1;
    switch (op) {
    case COPY:
        if (!PyArg_ParseTuple(fields, "iiLiLn", &op, &line->to.end, &to, &line->from.end, &from,
                              &line->count))
            return -1;
        break;
    case BOX:
        if (!PyArg_ParseTuple(fields, "iiLiLnO!O!O!", &op, &line->to.end, &to, &line->from.end,
                              &from, &item, &PyTuple_Type, &shape, &PyTuple_Type, &strides,
                              &PyTuple_Type, &others))
            return -1;
        line->box = new_box(item, shape, strides, others);
        break;
    case KERNEL:
        if (!PyArg_ParseTuple(fields, "iiLiLKKp", &op, &line->to.end, &to, &line->from.end, &from,
                              &function, &handle, &line->checked))
            return -1;
        line->function = (void *)(uintptr_t)function;
        line->handle = (void *)(uintptr_t)handle;
        break;
    case SCALE:
        if (!PyArg_ParseTuple(fields, "iiLndO!O!", &op, &line->to.end, &to, &item, &line->factor,
                              &PyTuple_Type, &shape, &PyTuple_Type, &strides))
            return -1;
        if (item != sizeof(double) && item != sizeof(float)) {
            PyErr_Format(PyExc_ValueError, "real numbers of %zd bytes", item);
            return -1;
        }
        line->from.end = line->to.end;
        from = to;
        line->box = new_box(item, shape, strides, strides);
        break;
    case CALL:
        if (!PyArg_ParseTuple(fields, "iO", &op, &call))
            return -1;
        line->call = Py_NewRef(call);
        line->to.end = line->from.end = -1;
        to = from = 0;
        break;
    default:
        PyErr_Format(PyExc_ValueError, "no step %d is known", op);
        return -1;
    }
    line->to.at = (intptr_t)to;
    line->from.at = (intptr_t)from;
    if (line->to.end >= MOST_ENDS || line->from.end >= MOST_ENDS)
        PyErr_SetString(PyExc_ValueError, "no such end");
    return PyErr_Occurred() ? -1 : 0;
}

static int script_clear(Script *self)
{
    Py_ssize_t count = self->count;
    Line *lines = self->lines;
    self->count = 0;
    self->lines = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(lines[i].call);
        PyMem_Free(lines[i].box);
    }
    PyMem_Free(lines);
    Py_CLEAR(self->keep);
    return 0;
}

/* Script(lines, keep, alone) */
static PyObject *script_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(names))
{
    PyObject *lines, *keep;
    int alone;
    if (!PyArg_ParseTuple(args, "O!Op", &PyList_Type, &lines, &keep, &alone))
        return NULL;
    allocfunc make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Script *self = (Script *)make(type, 0);
    if (self == NULL)
        return NULL;
    Py_ssize_t count = PyList_Size(lines);
    self->keep = Py_NewRef(keep);
    self->alone = alone;
    self->lines = PyMem_Calloc((size_t)count + 1, sizeof *self->lines);
    if (self->lines == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++) {
        PyObject *fields = PyList_GetItem(lines, i);
        self->count = i + 1;
        if (!PyTuple_Check(fields) || PyTuple_Size(fields) < 2)
            PyErr_SetString(PyExc_TypeError, "a step is a tuple");
        else
            read_line(&self->lines[i], fields);
    }
    if (PyErr_Occurred()) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int script_traverse(Script *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    for (Py_ssize_t i = 0; i < self->count; i++)
        Py_VISIT(self->lines[i].call);
    Py_VISIT(self->keep);
    return 0;
}

static void script_dealloc(Script *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    script_clear(self);
    release(self);
    Py_DECREF(type);
}

static PyType_Slot script_slots[] = {
    {Py_tp_new, script_new},
    {Py_tp_call, run_script},
    {Py_tp_clear, script_clear},
    {Py_tp_traverse, script_traverse},
    {Py_tp_dealloc, script_dealloc},
    {0, NULL},
};

static PyType_Spec script_spec = {
    "onesided.collectives._core.Script", sizeof(Script), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, script_slots,
};

int add_scripts(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&script_spec);
    if (type == NULL)
        return -1;
    int code = PyModule_AddObjectRef(module, "Script", type);
    Py_DECREF(type);
    return code;
}
