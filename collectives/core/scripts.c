/* Scripts: steps on local data, executed in order by one call. The reference, with the same words,
   is collectives/scripts.py. */

#include "core.h"

enum { MOST_ENDS = 4, MOST_PLACES = 6 };

/* A library's transform of one set of lines: an MKL function, which is variadic and returns a
   status, or an FFTW one. */
typedef long (*Checked)(void *handle, void *source, ...);
typedef void (*Plain)(void *handle, void *source, void *target);

/* A function of our own: of an object, a number, and the addresses of its places. */
typedef void (*Work)(void *handle, Py_ssize_t number, char *const *places);

/* An address; or an offset from the array that is given as this end, from 0, when it is run. */
typedef struct {
    int end;
    intptr_t at;
} Place;

typedef struct {
    int op;
    Place to, from;         /* of CALL: the end that its answer becomes, -1 for none */
    Py_ssize_t count;       /* bytes of COPY, items of GATHER, the number of WORK */
    int places;             /* of WORK */
    Place place[MOST_PLACES];
    const int64_t *index;   /* of GATHER, whose items have so many bytes: */
    Py_ssize_t item;
    int bare;               /* CALL without arguments */
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
    int ends;               /* how many there are; of some, calls in the script give the memory */
    int needed;             /* so many have to be given: the others are answered before their use */
    Py_ssize_t bytes[MOST_ENDS];
    PyObject *keep;         /* what the lines point into */
} Script;

static inline char *resolved(Place place, char *const *ends)
{
    return place.end < 0 ? (char *)place.at : ends[place.end] + place.at;
}

void gather_items(char *to, const char *from, const int64_t *index, Py_ssize_t count,
                  Py_ssize_t item)
{
#define GATHERED(type) \
    for (Py_ssize_t i = 0; i < count; i++) \
        memcpy(to + i * (Py_ssize_t)sizeof(type), from + index[i] * (Py_ssize_t)sizeof(type), \
               sizeof(type))
    typedef struct { uint64_t words[2]; } pair;
    switch (item) {
    case 4: GATHERED(uint32_t); break;
    case 8: GATHERED(uint64_t); break;
    case 16: GATHERED(pair); break;
    default:
        for (Py_ssize_t i = 0; i < count; i++)
            memcpy(to + i * item, from + index[i] * item, (size_t)item);
    }
#undef GATHERED
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
        if (line->op == WORK) {
            char *places[MOST_PLACES];
            for (int place = 0; place < line->places; place++)
                places[place] = resolved(line->place[place], ends);
            ((Work)line->function)(line->handle, line->count, places);
            continue;
        }
        char *to = resolved(line->to, ends), *from = resolved(line->from, ends);
        switch (line->op) {
        case COPY:
            memcpy(to, from, (size_t)line->count);
            break;
        case BOX:
            copy_box(line->box, to, from);
            break;
        case GATHER:
            gather_items(to, from, line->index, line->count, line->item);
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

/* Where the memory of an end is: contiguous, as large as that of its sample, writable but for the
   first. NULL with an exception. */
static char *memory_of(const Script *self, int end, PyObject *array)
{
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, end ? PyBUF_ND | PyBUF_WRITABLE : PyBUF_ND) < 0)
        return NULL;
    char *memory = view.buf;
    Py_ssize_t bytes = view.len;
    PyBuffer_Release(&view); /* who calls keeps the array */
    if (bytes == self->bytes[end])
        return memory;
    PyErr_Format(PyExc_ValueError, "end %d of a script has %zd bytes, not %zd", end,
                 self->bytes[end], bytes);
    return NULL;
}

/* The arrays that were given, and those that calls have answered. */
static PyObject *all_ends(const Script *self, PyObject *arrays, PyObject *const *kept)
{
    PyObject *all = PyTuple_New(self->ends);
    for (int end = 0; all != NULL && end < self->ends; end++) {
        PyObject *array = kept[end] != NULL                ? kept[end]
                          : end < PyTuple_Size(arrays) ? PyTuple_GetItem(arrays, end)
                                                       : Py_None;
        PyTuple_SetItem(all, end, Py_NewRef(array));
    }
    return all;
}

/* A call of Python; what it answers may be an end from now on, and is kept. */
static int run_call(const Script *self, const Line *line, PyObject *arrays, char **ends,
                    PyObject **kept)
{
    PyObject *said, *all;
    if (line->bare) {
        said = PyObject_CallNoArgs(line->call);
    } else {
        all = all_ends(self, arrays, kept);
        said = all == NULL ? NULL : PyObject_CallObject(line->call, all);
        Py_XDECREF(all);
    }
    int end = line->to.end;
    if (said != NULL && end >= 0) {
        Py_XDECREF(kept[end]);
        kept[end] = Py_NewRef(said);
        ends[end] = memory_of(self, end, said);
        if (PyErr_Occurred())
            Py_CLEAR(said);
    }
    if (said == NULL)
        return -1;
    Py_DECREF(said);
    return 0;
}

static int run_all(const Script *self, PyObject *arrays, char **ends, PyObject **kept)
{
    Py_ssize_t here = 0;
    while (here < self->count) {
        if (self->alone && self->lines[here].op != CALL) { /* never for nothing */
            Py_BEGIN_ALLOW_THREADS
            here = run_lines(self, here, ends);
            Py_END_ALLOW_THREADS
        } else {
            here = run_lines(self, here, ends);
        }
        if (here < 0) {
            PyErr_Format(PyExc_RuntimeError, "a kernel failed with status %zd", -1 - here);
            return -1;
        }
        if (here < self->count && run_call(self, &self->lines[here++], arrays, ends, kept) < 0)
            return -1;
    }
    return 0;
}

/* script(ends) or script(ends, addresses): arrays, and where their first elements are; without
   addresses they are contiguous, and as large as the samples. */
static PyObject *run_script(PyObject *object, PyObject *args, PyObject *names)
{
    Script *self = (Script *)object;
    PyObject *arrays, *addresses = NULL;
    char *ends[MOST_ENDS] = {NULL};
    PyObject *kept[MOST_ENDS] = {NULL};
    if (names != NULL && PyDict_Size(names)) {
        PyErr_SetString(PyExc_TypeError, "a script takes no names");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O!|O!", &PyTuple_Type, &arrays, &PyTuple_Type, &addresses))
        return NULL;
    int given = (int)PyTuple_Size(arrays);
    if (given > self->ends || (addresses != NULL && PyTuple_Size(addresses) != given))
        return PyErr_Format(PyExc_ValueError, "a script has %d ends", self->ends);
    if (given < self->needed)
        return PyErr_Format(PyExc_ValueError, "%d ends of a script are given, %d are needed", given,
                            self->needed);
    for (int i = 0; i < given; i++) {
        ends[i] = addresses == NULL ? memory_of(self, i, PyTuple_GetItem(arrays, i))
                                    : PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i));
        if (PyErr_Occurred())
            return NULL;
    }
    int failed = run_all(self, arrays, ends, kept);
    for (int i = 0; i < MOST_ENDS; i++)
        Py_XDECREF(kept[i]);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* For "O&" of PyArg_ParseTuple: a pair of an end and an offset, or of -1 and an address. */
static int as_place(PyObject *pair, void *found)
{
    Place *place = found;
    long long at;
    if (!PyArg_ParseTuple(pair, "iL", &place->end, &at))
        return 0;
    place->at = (intptr_t)at;
    if (place->end >= MOST_ENDS)
        PyErr_SetString(PyExc_ValueError, "no such end");
    return place->end < MOST_ENDS;
}

static int read_places(Line *line, PyObject *places)
{
    Py_ssize_t count = PyTuple_Size(places);
    if (count > MOST_PLACES) {
        PyErr_Format(PyExc_ValueError, "%zd places", count);
        return 0;
    }
    line->places = (int)count;
    for (int i = 0; i < line->places; i++)
        if (!as_place(PyTuple_GetItem(places, i), &line->place[i]))
            return 0;
    return 1;
}

/* Whether there is such a line; else an exception. */
static int read_line(Line *line, PyObject *fields)
{
    PyObject *call, *shape, *strides, *others, *places;
    Py_ssize_t item;
    int op = line->op = (int)PyLong_AsLong(PyTuple_GetItem(fields, 0));
    if (PyErr_Occurred())
        return 0;
    line->to.end = line->from.end = -1;
    switch (op) {
    case COPY:
        return PyArg_ParseTuple(fields, "iO&O&n", &op, as_place, &line->to, as_place, &line->from,
                                &line->count);
    case BOX:
        if (!PyArg_ParseTuple(fields, "iO&O&nO!O!O!", &op, as_place, &line->to, as_place,
                              &line->from, &item, &PyTuple_Type, &shape, &PyTuple_Type, &strides,
                              &PyTuple_Type, &others))
            return 0;
        line->box = new_box(item, shape, strides, others);
        return line->box != NULL;
    case KERNEL:
        return PyArg_ParseTuple(fields, "iO&O&O&O&p", &op, as_place, &line->to, as_place,
                                &line->from, as_pointer, &line->function, as_pointer,
                                &line->handle, &line->checked);
    case SCALE:
        if (!PyArg_ParseTuple(fields, "iO&ndO!O!", &op, as_place, &line->to, &item, &line->factor,
                              &PyTuple_Type, &shape, &PyTuple_Type, &strides))
            return 0;
        if (item != sizeof(double) && item != sizeof(float)) {
            PyErr_Format(PyExc_ValueError, "real numbers of %zd bytes", item);
            return 0;
        }
        line->from = line->to;
        line->box = new_box(item, shape, strides, strides);
        return line->box != NULL;
    case GATHER:
        return PyArg_ParseTuple(fields, "iO&O&O&nn", &op, as_place, &line->to, as_place,
                                &line->from, as_pointer, &line->index, &line->count, &line->item);
    case WORK:
        return PyArg_ParseTuple(fields, "iO&O&nO!", &op, as_pointer, &line->function, as_pointer,
                                &line->handle, &line->count, &PyTuple_Type, &places) &&
            read_places(line, places);
    case CALL:
        if (!PyArg_ParseTuple(fields, "iOpi", &op, &call, &line->bare, &line->to.end))
            return 0;
        line->call = Py_NewRef(call);
        if (line->to.end >= MOST_ENDS)
            PyErr_SetString(PyExc_ValueError, "no such end");
        return line->to.end < MOST_ENDS;
    default:
        PyErr_Format(PyExc_ValueError, "no step %d is known", op);
        return 0;
    }
}

/* How many ends have to be given: all up to the last that is used before a call answers it. */
static int ends_needed(const Script *self)
{
    int needed = 0, answered[MOST_ENDS] = {0};
    for (Py_ssize_t i = 0; i < self->count; i++) {
        const Line *line = &self->lines[i];
        if (line->op == CALL) {
            if (line->to.end >= 0)
                answered[line->to.end] = 1;
            continue;
        }
        for (int j = -2; j < line->places; j++) {
            int end = j == -2 ? line->to.end : j == -1 ? line->from.end : line->place[j].end;
            if (end >= needed && !answered[end])
                needed = end + 1;
        }
    }
    return needed;
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

/* Script(lines, keep, alone, bytes): the last of every end. */
static PyObject *script_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(names))
{
    PyObject *lines, *keep, *bytes;
    int alone;
    if (!PyArg_ParseTuple(args, "O!OpO!", &PyList_Type, &lines, &keep, &alone, &PyTuple_Type,
                          &bytes))
        return NULL;
    if (PyTuple_Size(bytes) > MOST_ENDS)
        return PyErr_Format(PyExc_ValueError, "a script has at most %d ends", MOST_ENDS);
    Script *self = (Script *)PyType_GenericNew(type, NULL, NULL);
    if (self == NULL)
        return NULL;
    Py_ssize_t count = PyList_Size(lines);
    self->keep = Py_NewRef(keep);
    self->alone = alone;
    self->ends = (int)PyTuple_Size(bytes);
    for (int i = 0; i < self->ends; i++)
        self->bytes[i] = PyLong_AsSsize_t(PyTuple_GetItem(bytes, i));
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
    self->needed = ends_needed(self);
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

static void script_dealloc(PyObject *self)
{
    deallocate(self, (inquiry)script_clear);
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
    return add_type(module, "Script", &script_spec);
}
