/* What the compiled core and its Python counterpart share: numbers of steps and states.

   collectives/program.py has the same numbers; the import compares them with the module's. Counters
   ("cells") are aligned 64-bit integers in memory that several processes map: written with release,
   read with acquire. */

#ifndef ONESIDED_CORE_H
#define ONESIDED_CORE_H

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

/* Steps of a round. */
enum { COPY = 0, BOX = 1, GATHER = 2, RAISE = 3, AWAIT = 4, CALL = 5, REDUCE = 6 };

/* What a CALL is: others wait for what it does; it is not made in Start; it waits for other ranks;
   it never says "not yet". */
enum { SERVES = 1, LATER = 2, BLOCKS = 4, ONCE = 8 };

/* Which calls may be made: none, those that wait for nobody, all, or those of Start. */
enum { NO_CALLS = 0, LOCAL_CALLS = 1, ALL_CALLS = 2, STARTING = 3 };

/* Steps of a script that a round has not. */
enum { KERNEL = 16, SCALE = 17, WORK = 18 };

/* States of a request. */
enum { INACTIVE = 0, ACTIVE = 1, BROKEN = 2, FREED = 3 };

/* Words of a board of a partitioned send, in units of 8 bytes. */
enum { CREDIT = 0, HEAD = 8, TOLD = 9, TAIL = 16, ENTRIES = 24, ROOM = 64 };

/* Copies of fewer bytes keep the interpreter lock: getting it back from a thread that computes in
   Python takes up to 5 ms. */
enum { ALONE = 1 << 18 };

/* This process is the child of one that has requests. */
extern int forked;

static inline int64_t cell_load(const int64_t *cell)
{
    return atomic_load_explicit((const _Atomic int64_t *)cell, memory_order_acquire);
}

static inline void cell_store(int64_t *cell, int64_t value)
{
    atomic_store_explicit((_Atomic int64_t *)cell, value, memory_order_release);
}

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "counters that processes share need lock-free atomics");

/* NumPy's arrays have no more axes. */
enum { MOST_AXES = 64 };

typedef struct {
    Py_ssize_t extent, to, from; /* strides in bytes */
} Axis;

/* The elements of a box, between two arrays. */
typedef struct {
    int axes;
    Py_ssize_t item;
    Axis axis[];
} Box;

void copy_box(const Box *box, char *to, const char *from);

/* to[i] = from[index[i]], of so many bytes each (scripts.c). */
void gather_items(char *to, const char *from, const int64_t *index, Py_ssize_t count,
                  Py_ssize_t item);

/* For "O&" of PyArg_ParseTuple: an address. */
int as_pointer(PyObject *number, void *place);

/* A new reference to a value, or to nothing, in place of what was there. */
static inline void assign(PyObject **place, PyObject *value)
{
    PyObject *before = *place;
    *place = Py_XNewRef(value);
    Py_XDECREF(before);
}

/* The end of an object whose type has a garbage collector; `clear` drops what it has. */
static inline void deallocate(PyObject *self, inquiry clear)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    clear(self);
    release(self);
    Py_DECREF(type);
}

/* Add a type to the module, which keeps it. */
static inline int add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    int code = type == NULL ? -1 : PyModule_AddObjectRef(module, name, type);
    Py_XDECREF(type);
    return code;
}

/* Of tuples of equal length; NULL with an exception. */
Box *new_box(Py_ssize_t item, PyObject *shape, PyObject *to, PyObject *from);

/* to[i] = left[i] op right[i]; NULL where there is no such loop (folds.c). */
typedef void (*Fold)(void *to, const void *left, const void *right, Py_ssize_t count);
Fold find_fold(int operation, int type);

int add_folds(PyObject *module);
int add_rounds(PyObject *module);
int add_marks(PyObject *module);
int add_scripts(PyObject *module);

#endif
