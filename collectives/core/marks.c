/* The marks of a partitioned send, compiled, with its way into memory of the node.

   It does what the counter and the board of collectives/partitioned do in Python, under the
   interpreter lock, which makes every method of it atomic, but for the copies of much, for which
   it gives up the lock (`copying`). */

#include "core.h"

/* What is called: where a group is complete and cannot leave from here; with a partition, and with a
   range, that cannot be marked. */
enum { PUSH = 0, REFUSE = 1, REFUSE_RANGE = 2, BOUND = 3 };

typedef struct {
    PyObject_HEAD
    Py_ssize_t partitions, part, per, groups;
    Py_ssize_t missing;  /* partitions that are not ready */
    Py_ssize_t waiting;  /* complete groups that have not left */
    Py_ssize_t copying;  /* runs of groups that are being stored */
    Py_ssize_t first;    /* no group before this one waits */
    uint8_t *flags;      /* by partition: ready */
    uint8_t *pending;    /* by group: complete, and has not left */
    Py_ssize_t *counts;  /* by group: partitions that are ready */
    PyObject *bound[BOUND];
    int connected, granted, expects;
    int told;            /* push has been called because groups wait */
    int64_t credit, head, counted;
    Py_buffer target, source, board;
} Counter;

static Py_ssize_t full(const Counter *self, Py_ssize_t group)
{
    Py_ssize_t rest = self->partitions - group * self->per;
    return rest < self->per ? rest : self->per;
}

static void close_round(Counter *self)
{
    memset(self->flags, 1, (size_t)self->partitions);
    memset(self->pending, 0, (size_t)self->groups);
    self->missing = self->waiting = 0;
}

/* -- marks ------------------------------------------------------------------------------------- */

static void add(Counter *self, Py_ssize_t group, Py_ssize_t count)
{
    self->counts[group] += count;
    if (self->counts[group] == full(self, group)) {
        self->pending[group] = 1;
        self->waiting++;
        if (group < self->first)
            self->first = group;
    }
}

/* Marks a range that exists; -1, or the first partition that is marked already. */
static Py_ssize_t add_range(Counter *self, Py_ssize_t low, Py_ssize_t high)
{
    uint8_t *found = memchr(self->flags + low, 1, (size_t)(high + 1 - low));
    if (found != NULL)
        return found - self->flags;
    memset(self->flags + low, 1, (size_t)(high + 1 - low));
    self->missing -= high + 1 - low;
    for (Py_ssize_t group = low / self->per; group <= high / self->per; group++) {
        Py_ssize_t start = group * self->per, stop = start + full(self, group);
        add(self, group, (stop < high + 1 ? stop : high + 1) - (start > low ? start : low));
    }
    return -1;
}

/* Marks many; -1, or one that is marked already, twice, or does not exist: nothing is marked then. */
static PyObject *mark(Counter *self, PyObject *ids)
{
    Py_buffer view;
    if (PyObject_GetBuffer(ids, &view, PyBUF_CONTIG_RO) < 0)
        return NULL;
    if (view.itemsize != sizeof(int64_t)) {
        PyBuffer_Release(&view);
        return PyErr_Format(PyExc_TypeError, "partitions are 64-bit integers");
    }
    const int64_t *values = view.buf;
    Py_ssize_t count = view.len / (Py_ssize_t)sizeof *values, done = 0;
    int64_t culprit = -1;
    for (; done < count; done++) {
        int64_t index = values[done];
        if (index < 0 || index >= self->partitions || self->flags[index]) {
            culprit = index;
            break;
        }
        self->flags[index] = 1;
    }
    if (done < count)
        while (done-- > 0)
            self->flags[values[done]] = 0;
    else {
        self->missing -= count;
        for (Py_ssize_t i = 0; i < count; i++)
            add(self, (Py_ssize_t)values[i] / self->per, 1);
    }
    PyBuffer_Release(&view);
    return PyLong_FromLongLong(culprit);
}

/* -- what leaves -------------------------------------------------------------------------------- */

static int take_run(Counter *self, Py_ssize_t *first, Py_ssize_t *stop)
{
    if (!self->waiting)
        return 0;
    uint8_t *found = memchr(self->pending + self->first, 1, (size_t)(self->groups - self->first));
    if (found == NULL)
        return 0;
    Py_ssize_t begin = found - self->pending, end = begin;
    while (end < self->groups && self->pending[end])
        self->pending[end++] = 0;
    self->waiting -= end - begin;
    self->first = end;
    *first = begin;
    *stop = end;
    return 1;
}

static PyObject *take(Counter *self, PyObject *Py_UNUSED(nothing))
{
    Py_ssize_t first, stop;
    if (!take_run(self, &first, &stop))
        return PyErr_Format(PyExc_IndexError, "no group waits");
    return Py_BuildValue("nn", first, stop);
}

static int64_t *word(const Counter *self, int place)
{
    return (int64_t *)self->board.buf + place;
}

static int may_leave(Counter *self)
{
    if (!self->granted && self->expects)
        self->granted = cell_load(word(self, CREDIT)) == self->credit;
    /* runs that are being stored have no entry yet, but each will want one */
    return self->granted &&
        self->head + self->copying - cell_load(word(self, TAIL)) < ROOM;
}

static void release_board(Counter *self);

/* Store what is complete, and tell of it. */
static void leave(Counter *self)
{
    Py_ssize_t first, stop;
    while (self->waiting && may_leave(self) && take_run(self, &first, &stop)) {
        Py_ssize_t size = self->per * self->part, start = first * size;
        Py_ssize_t end = stop < self->groups ? stop * size : self->partitions * self->part;
        char *to = (char *)self->target.buf + start;
        const char *from = (const char *)self->source.buf + start;
        self->copying++;
        if (end - start < ALONE)
            memcpy(to, from, (size_t)(end - start));
        else {
            Py_BEGIN_ALLOW_THREADS
            memcpy(to, from, (size_t)(end - start));
            Py_END_ALLOW_THREADS
        }
        self->copying--;
        if (!self->connected) { /* another thread has given the round up */
            release_board(self);
            return;
        }
        *word(self, ENTRIES + (int)(self->head % ROOM)) = (int64_t)first << 32 | (int64_t)stop;
        cell_store(word(self, HEAD), ++self->head);
        cell_store(word(self, TOLD), self->counted += stop - first);
    }
    if (!self->waiting)
        self->told = 0; /* who helps is gone when nothing waits; what waits later is told again */
}

static PyObject *drain(Counter *self, PyObject *Py_UNUSED(nothing))
{
    if (self->connected)
        leave(self);
    Py_RETURN_NONE;
}

/* The number of a partition, -1 for anything else. */
static Py_ssize_t as_index(const Counter *self, PyObject *partition)
{
    Py_ssize_t index = PyLong_CheckExact(partition) ? PyLong_AsSsize_t(partition) : -1;
    if (index < 0)
        PyErr_Clear();
    return index < self->partitions ? index : -1;
}

static PyObject *let_go(Counter *self, Py_ssize_t before)
{
    if (self->waiting) {
        if (self->connected)
            leave(self);
        if (self->connected ? self->waiting && !self->told : self->waiting > before) {
            self->told = self->connected;
            PyObject *push = Py_NewRef(self->bound[PUSH]); /* Free binds something else */
            PyObject *said = PyObject_CallNoArgs(push);
            Py_DECREF(push);
            return said;
        }
    }
    Py_RETURN_NONE;
}

/* Say what cannot be marked, in the words of the Python verb, which knows the names as well. */
static PyObject *refused(PyObject *bound, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *verb = Py_NewRef(bound);
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    PyObject *values = PyTuple_New(count), *keywords = PyDict_New(), *said = NULL;
    int failed = values == NULL || keywords == NULL;
    for (Py_ssize_t i = 0; !failed && i < count; i++)
        failed = PyTuple_SetItem(values, i, Py_NewRef(args[i])) < 0;
    for (Py_ssize_t i = 0; !failed && i < named; i++)
        failed = PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[count + i]) < 0;
    if (!failed)
        said = PyObject_Call(verb, values, keywords);
    Py_DECREF(verb);
    Py_XDECREF(values);
    Py_XDECREF(keywords);
    return said;
}

/* Pready: mark one partition, and let go what is complete. */
static PyObject *pready(Counter *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count != 1 || names != NULL || forked)
        return refused(self->bound[REFUSE], args, count, names);
    Py_ssize_t index = as_index(self, args[0]), before = self->waiting;
    if (index < 0 || self->flags[index])
        return refused(self->bound[REFUSE], args, count, names);
    self->flags[index] = 1;
    self->missing--;
    add(self, index / self->per, 1);
    return let_go(self, before);
}

/* Pready_range: the same for the partitions from the first to the last, both included. */
static PyObject *pready_range(Counter *self, PyObject *const *args, Py_ssize_t count,
                              PyObject *names)
{
    Py_ssize_t low = -1, high = -1, before = self->waiting;
    if (count == 2 && names == NULL && !forked) {
        low = as_index(self, args[0]);
        high = as_index(self, args[1]);
    }
    if (low < 0 || high < low || add_range(self, low, high) >= 0)
        return refused(self->bound[REFUSE_RANGE], args, count, names);
    return let_go(self, before);
}

/* -- the round, the board ------------------------------------------------------------------------ */

static PyObject *reset(Counter *self, PyObject *Py_UNUSED(nothing))
{
    memset(self->flags, 0, (size_t)self->partitions);
    memset(self->pending, 0, (size_t)self->groups);
    memset(self->counts, 0, (size_t)self->groups * sizeof *self->counts);
    self->missing = self->partitions;
    self->waiting = self->first = 0;
    self->told = 0;
    self->granted = 0; /* the credit of the round before is that of another round */
    self->expects = 0;
    Py_RETURN_NONE;
}

/* Whether the round lacked partitions: it is over then. */
static PyObject *close_marks(Counter *self, PyObject *Py_UNUSED(nothing))
{
    int lacks = self->missing > 0;
    if (lacks)
        close_round(self);
    return PyBool_FromLong(lacks);
}

static PyObject *unmarked(Counter *self, PyObject *Py_UNUSED(nothing))
{
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < self->partitions; i++) {
        if (self->flags[i])
            continue;
        PyObject *index = PyLong_FromSsize_t(i);
        if (index == NULL || PyList_Append(found, index) < 0)
            Py_CLEAR(found);
        Py_XDECREF(index);
    }
    return found;
}

/* While a thread stores, the memory stays; that thread gives it back. */
static void release_board(Counter *self)
{
    self->connected = self->granted = self->expects = 0;
    if (self->copying)
        return;
    PyBuffer_Release(&self->target);
    PyBuffer_Release(&self->source);
    PyBuffer_Release(&self->board);
}

static PyObject *disconnect(Counter *self, PyObject *Py_UNUSED(nothing))
{
    release_board(self);
    Py_RETURN_NONE;
}

static PyObject *connect_board(Counter *self, PyObject *args)
{
    PyObject *target, *source, *board;
    if (!PyArg_ParseTuple(args, "OOO", &target, &source, &board))
        return NULL;
    release_board(self);
    if (PyObject_GetBuffer(target, &self->target, PyBUF_WRITABLE) < 0 ||
        PyObject_GetBuffer(source, &self->source, PyBUF_SIMPLE) < 0 ||
        PyObject_GetBuffer(board, &self->board, PyBUF_WRITABLE) < 0) {
        release_board(self);
        return NULL;
    }
    Py_ssize_t nbytes = self->partitions * self->part;
    if (self->target.len != nbytes || self->source.len != nbytes ||
        self->board.len < (ENTRIES + ROOM) * (Py_ssize_t)sizeof(int64_t) ||
        (uintptr_t)self->board.buf % sizeof(int64_t)) {
        PyErr_Format(PyExc_ValueError, "%zd and %zd bytes for a message of %zd, %zd for a board",
                     self->target.len, self->source.len, nbytes, self->board.len);
        release_board(self);
        return NULL;
    }
    self->connected = 1;
    self->head = self->counted = 0;
    Py_RETURN_NONE;
}

static PyObject *expect(Counter *self, PyObject *credit)
{
    long long value = PyLong_AsLongLong(credit);
    if (value == -1 && PyErr_Occurred())
        return NULL;
    self->credit = value;
    self->granted = 0;
    self->expects = 1;
    Py_RETURN_NONE;
}

/* NULL: nothing is bound. */
static void set_bound(Counter *self, PyObject *const *given)
{
    for (int i = 0; i < BOUND; i++)
        assign(&self->bound[i], given == NULL ? Py_None : given[i]);
}

static PyObject *bind(Counter *self, PyObject *args)
{
    PyObject *given[BOUND];
    if (!PyArg_ParseTuple(args, "OOO", &given[PUSH], &given[REFUSE], &given[REFUSE_RANGE]))
        return NULL;
    set_bound(self, given);
    Py_RETURN_NONE;
}

/* -- the type ------------------------------------------------------------------------------------- */

/* Everything is made here, so that there is no counter without its arrays. */
static PyObject *counter_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static char *words[] = {"partitions", "part", "per", NULL};
    Py_ssize_t partitions, part, per;
    if (!PyArg_ParseTupleAndKeywords(args, names, "nnn", words, &partitions, &part, &per))
        return NULL;
    if (partitions < 1 || part < 0 || per < 1 || per > partitions)
        return PyErr_Format(PyExc_ValueError, "%zd partitions of %zd bytes, %zd to a group",
                            partitions, part, per);
    Counter *self = (Counter *)PyType_GenericNew(type, NULL, NULL);
    if (self == NULL)
        return NULL;
    self->partitions = partitions;
    self->part = part;
    self->per = per;
    self->groups = (partitions + per - 1) / per;
    set_bound(self, NULL);
    self->flags = PyMem_Malloc((size_t)partitions);
    self->pending = PyMem_Malloc((size_t)self->groups);
    self->counts = PyMem_Calloc((size_t)self->groups, sizeof *self->counts);
    if (self->flags == NULL || self->pending == NULL || self->counts == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    close_round(self);
    return (PyObject *)self;
}

static int counter_traverse(Counter *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    for (int i = 0; i < BOUND; i++)
        Py_VISIT(self->bound[i]);
    return 0;
}

static int counter_clear(Counter *self)
{
    set_bound(self, NULL);
    return 0;
}

/* The last of it: from here on nothing is called. */
static int counter_end(Counter *self)
{
    release_board(self);
    for (int i = 0; i < BOUND; i++)
        Py_CLEAR(self->bound[i]);
    PyMem_Free(self->flags);
    PyMem_Free(self->pending);
    PyMem_Free(self->counts);
    return 0;
}

static void counter_dealloc(PyObject *self)
{
    deallocate(self, (inquiry)counter_end);
}

#define VERB(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, NULL

static PyMethodDef counter_methods[] = {
    {"bind", (PyCFunction)bind, METH_VARARGS, NULL},
    {"reset", (PyCFunction)reset, METH_NOARGS, NULL},
    {"close", (PyCFunction)close_marks, METH_NOARGS, NULL},
    {"pready", VERB(pready)},
    {"pready_range", VERB(pready_range)},
    {"mark", (PyCFunction)mark, METH_O, NULL},
    {"take", (PyCFunction)take, METH_NOARGS, NULL},
    {"unmarked", (PyCFunction)unmarked, METH_NOARGS, NULL},
    {"connect", (PyCFunction)connect_board, METH_VARARGS, NULL},
    {"disconnect", (PyCFunction)disconnect, METH_NOARGS, NULL},
    {"expect", (PyCFunction)expect, METH_O, NULL},
    {"drain", (PyCFunction)drain, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef counter_members[] = {
    {"missing", T_PYSSIZET, offsetof(Counter, missing), READONLY, NULL},
    {"waiting", T_PYSSIZET, offsetof(Counter, waiting), READONLY, NULL},
    {"copying", T_PYSSIZET, offsetof(Counter, copying), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot counter_slots[] = {
    {Py_tp_new, counter_new},
    {Py_tp_dealloc, counter_dealloc},
    {Py_tp_traverse, counter_traverse},
    {Py_tp_clear, counter_clear},
    {Py_tp_methods, counter_methods},
    {Py_tp_members, counter_members},
    {0, NULL},
};

static PyType_Spec counter_spec = {
    "onesided.collectives._core.Counter", sizeof(Counter), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, counter_slots,
};

int add_marks(PyObject *module)
{
    return add_type(module, "Counter", &counter_spec);
}
