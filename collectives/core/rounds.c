/* Rounds of a persistent collective as programs, and the verbs that run them.

   A round is a set of chains of steps. A chain is executed in order, and stops at an AWAIT whose
   counter is too low or a CALL that says so; chains do not wait for each other. The reference, with
   the same names, is collectives/program.py; collectives/steps.py explains the words. */

#include "core.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

/* Polls between two yields of the core, and yields between two looks at MPI and other requests;
   calls between two of them where there is no counter to be polled. */
enum { SPINS = 64, YIELDS = 4, CALLS = 48 };

/* Bytes of a cache line, and of the shortest and longest row of a box that is fetched while the one
   before is copied: of longer ones the processor sees where they go. */
enum { LINE = 64, SHORT_ROW = 256, LONG_ROW = 4096 };

typedef struct {
    int op;
    int flags;               /* of CALL */
    char *to;                /* COPY, BOX, GATHER, REDUCE; the cell of RAISE and AWAIT */
    const char *from;
    Py_ssize_t count;        /* bytes of COPY and BOX, items of GATHER and REDUCE */
    int64_t scale, shift;    /* of RAISE and AWAIT; the item size of GATHER and REDUCE */
    const char *right;       /* of REDUCE, which has its left side in `from`; GATHER's index */
    Fold fold;
    PyObject *call;
    Box *box;
} Step;

typedef struct {
    Step *steps;
    int count;
    int here;                /* the step that is executed next */
    int last_serving;        /* the last step that others wait for, -1 if none is */
    int last_call;           /* the last CALL up to there */
    int stops_before_call;   /* that CALL may be left to be made after Start */
} Chain;

typedef struct {
    Chain *chains;
    int *open;               /* the chains that are not at their end, in order */
    int count, left;
    int needs_calls, blocks; /* as of Rounds */
    Py_ssize_t bytes;        /* that are copied in a round */
} Plan;

typedef struct {
    PyObject_HEAD
    long long number;        /* rounds that this rank has started */
    long long granted;       /* the last round that its senders may write */
    int busy;                /* a round of one of the requests is active */
    int count;
    int64_t **cells;         /* where sources on the node look */
    PyObject *keep;
} Credit;

typedef struct Rounds {
    PyObject_HEAD
    int state, hooked, listed, unready, slot, variant, slots;
    int by_thread, watched;  /* the thread may, and does, look after late rounds */
    int by_python;           /* a thread of Python has to: a call is ahead, or there is no other */
    int needs_calls;         /* of some round, a late one may need calls */
    int blocks;              /* some step waits for other ranks */
    int calling;             /* the thread that is inside is in a CALL */
    int opening, freeing;    /* another call has it: it cannot be started meanwhile */
    atomic_int done;
    atomic_uintptr_t locked; /* 0, or the thread that is inside */
    struct Rounds *next_late;
    long long rounds, number;
    double in_start, in_wait, waiting; /* seconds, while a profile is made */
    long long helped;        /* passes of the thread that have moved something */
    int plan_count;
    Plan *plans;
    Credit *credit;
    PyObject *answers;       /* tuple: what Wait returns, by slot */
    PyObject *keep;          /* what the steps point into */
} Rounds;

static PyTypeObject *credit_type;

/* Times of every round are added up. */
static int profiling;

/* -- copies --------------------------------------------------------------------------------------- */

static inline void copy_items(char *to, const char *from, Py_ssize_t count, Py_ssize_t to_step,
                              Py_ssize_t from_step, Py_ssize_t item)
{
#define ITEMS(type) \
    for (Py_ssize_t i = 0; i < count; i++) \
        memcpy(to + i * to_step, from + i * from_step, sizeof(type))
    typedef struct { uint64_t words[2]; } pair;
    switch (item) {
    case 1: ITEMS(uint8_t); break;
    case 2: ITEMS(uint16_t); break;
    case 4: ITEMS(uint32_t); break;
    case 8: ITEMS(uint64_t); break;
    case 16: ITEMS(pair); break;
    default:
        for (Py_ssize_t i = 0; i < count; i++)
            memcpy(to + i * to_step, from + i * from_step, (size_t)item);
    }
#undef ITEMS
}

/* Ask for the cache lines of a row: the processor by itself sees no more than the row before. */
static inline void fetch_row(char *to, const char *from, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i += LINE) {
#if defined(__x86_64__)
        __asm__ __volatile__("prefetchw %0" : : "m"(to[i])); /* the builtin asks to read */
#elif defined(__GNUC__)
        __builtin_prefetch(to + i, 1);
#endif
#if defined(__GNUC__)
        __builtin_prefetch(from + i, 0);
#endif
    }
}

void copy_box(const Box *box, char *to, const char *from)
{
    Py_ssize_t at[MOST_AXES];
    const Axis *axes = box->axis;
    int inner = box->axes - 1;
    Py_ssize_t extent = axes[inner].extent, row = extent * box->item;
    int dense = axes[inner].to == box->item && axes[inner].from == box->item;
    memset(at, 0, (size_t)box->axes * sizeof *at);
    int fetched = dense && inner > 0 && row >= SHORT_ROW && row <= LONG_ROW;
    for (;;) {
        if (fetched && at[inner - 1] + 1 < axes[inner - 1].extent)
            fetch_row(to + axes[inner - 1].to, from + axes[inner - 1].from, row);
        if (dense)
            memcpy(to, from, (size_t)row);
        else
            copy_items(to, from, extent, axes[inner].to, axes[inner].from, box->item);
        int axis = inner - 1;
        for (; axis >= 0; axis--) {
            to += axes[axis].to;
            from += axes[axis].from;
            if (++at[axis] < axes[axis].extent)
                break;
            to -= axes[axis].to * axes[axis].extent;
            from -= axes[axis].from * axes[axis].extent;
            at[axis] = 0;
        }
        if (axis < 0)
            return;
    }
}

/* -- running -------------------------------------------------------------------------------------- */

/* Whether a CALL may be executed: by whom, and when, says the level. Of a request whose round is
   being given up (freeing is 2) no thread begins to wait for other ranks. */
static inline int may_call(const Rounds *self, const Step *step, int level)
{
    switch (level) {
    case ALL_CALLS: return !(self->freeing > 1 && step->flags & BLOCKS);
    case LOCAL_CALLS: return !(step->flags & BLOCKS);
    case STARTING: return !(step->flags & LATER);
    default: return 0;
    }
}

/* Execute a chain as far as it goes: 1 at its end, 0 where it waits, -1 with an exception.
   `released` holds the thread state while the interpreter lock is given up, else NULL. */
static int run_chain(Rounds *self, Chain *chain, int level, PyThreadState **released)
{
    while (chain->here < chain->count) {
        Step *step = &chain->steps[chain->here];
        switch (step->op) {
        case COPY:
            memcpy(step->to, step->from, (size_t)step->count);
            break;
        case BOX:
            copy_box(step->box, step->to, step->from);
            break;
        case GATHER:
            gather_items(step->to, step->from, (const int64_t *)step->right, step->count,
                         (Py_ssize_t)step->scale);
            break;
        case REDUCE:
            step->fold(step->to, step->from, step->right, step->count);
            break;
        case RAISE:
            cell_store((int64_t *)step->to, self->number * step->scale + step->shift);
            break;
        case AWAIT:
            if (cell_load((const int64_t *)step->to) < self->number * step->scale + step->shift)
                return 0;
            break;
        default: {
            if (level == NO_CALLS)
                return 0;
            PyThreadState *state = *released;
            if (state != NULL)
                PyEval_RestoreThread(state);
            if (!may_call(self, step, level)) {
                if (state != NULL)
                    *released = PyEval_SaveThread();
                return 0;
            }
            self->calling = 1;
            PyObject *said = PyObject_CallNoArgs(step->call);
            self->calling = 0;
            int blocked = said == Py_False;
            int failed = said == NULL;
            Py_XDECREF(said);
            if (failed) {
                *released = NULL; /* the caller finds the lock taken */
                return -1;
            }
            if (state != NULL)
                *released = PyEval_SaveThread();
            if (blocked)
                return 0;
        }
        }
        chain->here++;
    }
    return 1;
}

/* One pass over the open chains: 1 when all are at their end, else as run_chain. */
static int pass(Rounds *self, Plan *plan, int level, PyThreadState **released)
{
    int left = 0, code = 1;
    for (int i = 0; i < plan->left; i++) {
        Chain *chain = &plan->chains[plan->open[i]];
        int ended = code < 0 ? 0 : run_chain(self, chain, level, released);
        if (ended <= 0) {
            plan->open[left++] = plan->open[i];
            if (code >= 0)
                code = ended;
        }
    }
    plan->left = left;
    return code < 0 ? -1 : left == 0;
}

static int is_done(Rounds *self)
{
    return atomic_load_explicit(&self->done, memory_order_acquire);
}

static void set_done(Rounds *self, int done)
{
    atomic_store_explicit(&self->done, done, memory_order_release);
}

static Plan *current(Rounds *self)
{
    return &self->plans[self->variant * self->slots + self->slot];
}

/* A pass with the interpreter lock, given up meanwhile where much is copied. */
static int advance(Rounds *self, int level)
{
    Plan *plan = current(self);
    PyThreadState *released = NULL;
    if (plan->bytes >= ALONE)
        released = PyEval_SaveThread();
    int code = pass(self, plan, level, &released);
    if (released != NULL)
        PyEval_RestoreThread(released);
    set_done(self, code == 1);
    return code;
}

/* Whether a step is left that others wait for, or a call up to the last of these. */
static int is_ahead(Rounds *self, int call)
{
    Plan *plan = current(self);
    for (int i = 0; i < plan->left; i++) {
        const Chain *chain = &plan->chains[plan->open[i]];
        if (chain->here <= (call ? chain->last_call : chain->last_serving))
            return 1;
    }
    return 0;
}

/* Whether others may wait for the round; the caller has the lock. */
static int is_late(Rounds *self)
{
    return self->state == ACTIVE && !is_done(self) && !self->unready && is_ahead(self, 0);
}

/* Its address tells threads apart. */
static _Thread_local char this_thread;

static int try_lock(Rounds *self)
{
    uintptr_t nobody = 0;
    return atomic_compare_exchange_strong_explicit(
        &self->locked, &nobody, (uintptr_t)&this_thread, memory_order_acquire, memory_order_relaxed);
}

static void unlock(Rounds *self)
{
    atomic_store_explicit(&self->locked, 0, memory_order_release);
}

static PyObject *refuse(Rounds *self, const char *verb)
{
    return PyObject_CallMethod((PyObject *)self, "_refuse", "s", verb);
}

static int holds_lock(Rounds *self)
{
    return atomic_load_explicit(&self->locked, memory_order_relaxed) == (uintptr_t)&this_thread;
}

/* A signal handler, or a step, has called a verb of the request that it interrupts: 1, and an
   exception is set. */
static int is_inside(Rounds *self)
{
    if (!holds_lock(self))
        return 0;
    Py_XDECREF(refuse(self, "used in the middle of a call of it, by a signal handler or a step"));
    return 1;
}

/* Wait until no other thread is inside this request; -1 with an exception. */
static int lock(Rounds *self)
{
    while (!try_lock(self)) {
        if (is_inside(self))
            return -1;
        Py_BEGIN_ALLOW_THREADS
        sched_yield();
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
    return 0;
}

/* The same where a handler of signals, which might raise, has to wait. */
static void lock_unhandled(Rounds *self)
{
    while (!try_lock(self)) {
        Py_BEGIN_ALLOW_THREADS
        sched_yield();
        Py_END_ALLOW_THREADS
    }
}

/* -- progress without the interpreter -------------------------------------------------------------

   Late rounds whose steps need no Python are executed by a thread that never takes the interpreter
   lock: the program may be in a computation, or in a call, that holds it. The thread exists while
   something is late, and for a moment after, and sleeps between looks. */

/* Nanoseconds between two looks, at first and at most, and without work until the thread ends. */
static const long FIRST = 200000, RAREST = 2000000, LINGER = 500000000;

static pthread_mutex_t late_guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t late_left = PTHREAD_COND_INITIALIZER;
static Rounds *late_rounds; /* linked; this and the next ones are guarded by late_guard */
static Rounds *late_now;    /* the round that the thread is at: it stays in the list */
static int late_thread, late_stop;
int forked;

/* How many steps of the active round have been executed. */
static long long steps_done(const Plan *plan)
{
    long long done = 0;
    for (int c = 0; c < plan->count; c++)
        done += plan->chains[c].here;
    return done;
}

/* A pass of a late round, unless another thread is at it: whether something has moved. */
static int help(Rounds *self)
{
    int moved = 0;
    if (!try_lock(self))
        return 0;
    if (__atomic_load_n(&self->state, __ATOMIC_RELAXED) == ACTIVE && !is_done(self)
        && !self->unready) {
        PyThreadState *released = NULL;
        Plan *plan = current(self);
        long long before = steps_done(plan);
        set_done(self, pass(self, plan, NO_CALLS, &released) == 1);
        moved = steps_done(plan) > before;
        self->helped += moved;
    }
    unlock(self);
    return moved;
}

/* Rounds are helped without the mutex, which others want while much is copied. */
static void *look_after_late_rounds(void *Py_UNUSED(nothing))
{
    long pause = FIRST, idle = 0;
    for (;;) {
        struct timespec time = {0, pause};
        nanosleep(&time, NULL);
        pthread_mutex_lock(&late_guard);
        int moved = 0;
        for (late_now = late_rounds; late_now != NULL && !late_stop; late_now = late_now->next_late) {
            pthread_mutex_unlock(&late_guard);
            moved |= help(late_now);
            pthread_mutex_lock(&late_guard);
            pthread_cond_broadcast(&late_left);
        }
        late_now = NULL;
        pthread_cond_broadcast(&late_left);
        idle = late_rounds != NULL ? 0 : idle + pause;
        if (late_stop || idle > LINGER) {
            late_thread = 0;
            pthread_mutex_unlock(&late_guard);
            return NULL;
        }
        pthread_mutex_unlock(&late_guard);
        pause = moved ? FIRST : pause < RAREST ? pause + pause / 4 : RAREST;
    }
}

/* The thread takes no signals, which the program may block in its own threads, but those of its own
   errors. */
static int make_late_thread(void)
{
    pthread_t thread;
    pthread_attr_t detached;
    sigset_t blocked, before;
    const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&blocked, own[i]);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int made = pthread_create(&thread, &detached, look_after_late_rounds, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return made;
}

/* Let the thread look after a late round; 0 where there can be none. */
static int watch_over(Rounds *self)
{
    pthread_mutex_lock(&late_guard);
    if (!late_thread && !late_stop)
        late_thread = make_late_thread();
    int watched = late_thread && !late_stop;
    if (watched) {
        self->next_late = late_rounds;
        late_rounds = self;
    }
    pthread_mutex_unlock(&late_guard);
    return watched;
}

static void forget_round(Rounds *self)
{
    pthread_mutex_lock(&late_guard);
    while (late_now == self)
        pthread_cond_wait(&late_left, &late_guard);
    for (Rounds **link = &late_rounds; *link != NULL; link = &(*link)->next_late)
        if (*link == self) {
            *link = self->next_late;
            break;
        }
    pthread_mutex_unlock(&late_guard);
}

static void after_fork_in_child(void)
{
    pthread_mutex_init(&late_guard, NULL);
    pthread_cond_init(&late_left, NULL);
    late_rounds = late_now = NULL;
    late_thread = 0;
    forked = 1;
}

/* End the thread, as what it looks at is about to be unmapped: whether it exists yet. */
static PyObject *stop_thread(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    pthread_mutex_lock(&late_guard);
    late_stop = 1;
    int exists = late_thread;
    pthread_mutex_unlock(&late_guard);
    return PyBool_FromLong(exists);
}

/* profile(on): whether times of rounds are added up from now on. */
static PyObject *profile(PyObject *Py_UNUSED(module), PyObject *on)
{
    profiling = PyObject_IsTrue(on) == 1;
    Py_RETURN_NONE;
}

/* Where the first element of an array lies in memory; NULL with an exception. */
static void *memory_of(PyObject *array)
{
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_STRIDES) < 0)
        return NULL;
    PyBuffer_Release(&view);
    return view.buf;
}

static PyObject *address(PyObject *Py_UNUSED(module), PyObject *array)
{
    void *memory = memory_of(array);
    return PyErr_Occurred() ? NULL : PyLong_FromVoidPtr(memory);
}

static PyMethodDef functions[] = {
    {"address", address, METH_O, NULL},
    {"profile", profile, METH_O, NULL},
    {"stop_thread", stop_thread, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* -- the verbs ------------------------------------------------------------------------------------ */

/* Call a method of the request, with this argument if there is one. */
static int tell(Rounds *self, const char *name, PyObject *argument)
{
    PyObject *said = PyObject_CallMethod((PyObject *)self, name, argument ? "O" : NULL, argument);
    Py_XDECREF(said);
    return said == NULL ? -1 : 0;
}

static int hook(Rounds *self, const char *name)
{
    return tell(self, name, NULL);
}

/* An error in the middle of a round, the first one: from now on only Free is possible, which another
   thread may have called already. The caller has the lock. */
static void break_with(Rounds *self, PyObject *error)
{
    if (self->state == FREED || self->state == BROKEN)
        return;
    self->state = BROKEN;
    if (self->watched)
        forget_round(self);
    self->watched = self->listed = 0;
    if (tell(self, "_breaks", error) < 0)
        PyErr_Clear();
}

/* The same with the exception that is set, and stays. */
static void breaks(Rounds *self)
{
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_NormalizeException(&kind, &value, &trace);
    if (value != NULL && trace != NULL)
        PyException_SetTraceback(value, trace);
    break_with(self, value ? value : Py_None);
    PyErr_Restore(kind, value, trace);
}

static void grant(Credit *credit, long long number)
{
    credit->granted = number;
    for (int i = 0; i < credit->count; i++)
        cell_store(credit->cells[i], number);
}

/* Whether there are programs for such a round, and this process may run them; else an exception. */
static int can_run(Rounds *self, int variant)
{
    if (forked)
        Py_XDECREF(refuse(self, "started in a forked child, whose memory is its parent's"));
    else if (self->slots < 1 || self->plan_count < (variant + 1) * self->slots)
        PyErr_SetString(PyExc_RuntimeError, "the request has no program for such a round");
    else
        return 1;
    return 0;
}

/* The next round gets its number and its slot; the caller has the lock. */
static void reserve(Rounds *self, int variant)
{
    Credit *credit = self->credit;
    self->slot = (int)(self->rounds % self->slots);
    self->variant = variant;
    self->rounds++;
    set_done(self, 0);
    self->number = self->rounds;
    current(self)->left = 0;
    if (credit != NULL) {
        credit->busy = 1;
        self->number = ++credit->number;
        if (credit->granted < self->number)
            grant(credit, self->number);
    }
}

/* Execute what can be executed at once. */
static int launch(Rounds *self)
{
    Plan *plan = current(self);
    plan->left = plan->count;
    for (int i = 0; i < plan->count; i++) {
        plan->open[i] = i;
        plan->chains[i].here = 0;
    }
    return advance(self, STARTING);
}

static int enlist(Rounds *self)
{
    if (self->listed || !is_late(self))
        return 0;
    self->listed = 1;
    self->watched = self->by_thread && watch_over(self);
    self->by_python = self->by_thread && (!self->watched || is_ahead(self, 1));
    return hook(self, "_enlist");
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* After an error the round is broken: the caller returns NULL. */
static PyObject *give_up(Rounds *self)
{
    breaks(self);
    unlock(self);
    return NULL;
}

/* Whether the request is active, or another one into the same memory, or it can be no more. */
static int is_busy(const Rounds *self)
{
    return self->state != INACTIVE || (self->credit != NULL && self->credit->busy);
}

/* The same of a round that begins by Start. */
static int is_taken(const Rounds *self)
{
    return is_busy(self) || self->opening || self->freeing;
}

/* Raise what Start would raise before it does anything. */
static PyObject *check_start(Rounds *self, PyObject *Py_UNUSED(nothing))
{
    if (is_taken(self))
        return refuse(self, "started");
    return can_run(self, 0) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *Start(Rounds *self, PyObject *Py_UNUSED(nothing))
{
    PyObject *can = check_start(self, NULL);
    if (can == NULL)
        return NULL;
    Py_DECREF(can);
    double began = profiling ? now() : 0;
    if (self->hooked && hook(self, "_before_start") < 0)
        return NULL; /* nothing has been sent, and nothing changed that a second Start would miss */
    if (lock(self) < 0)
        return NULL;
    if (is_taken(self)) {
        unlock(self); /* another thread, or a signal handler, was faster */
        return refuse(self, "started");
    }
    self->state = ACTIVE;
    reserve(self, 0);
    if (launch(self) < 0)
        return give_up(self);
    if ((self->hooked && hook(self, "_after_start") < 0) || (!is_done(self) && enlist(self) < 0))
        return give_up(self);
    if (began > 0)
        self->in_start += now() - began;
    unlock(self);
    Py_RETURN_NONE;
}

static int delist(Rounds *self)
{
    if (!self->listed)
        return 0;
    self->listed = 0;
    if (self->watched)
        forget_round(self);
    self->watched = 0;
    return hook(self, "_delist");
}

/* Whether a chain waits for a counter; the others wait for a call of Python. */
static int awaits(const Plan *plan)
{
    for (int i = 0; i < plan->left; i++) {
        const Chain *chain = &plan->chains[plan->open[i]];
        if (chain->steps[chain->here].op == AWAIT)
            return 1;
    }
    return 0;
}

/* Poll without the interpreter lock, which threads that mark or help may want. Where there is no
   counter to be polled, calls are made instead. */
static int poll(Rounds *self)
{
    Plan *plan = current(self);
    int code = 0, calls = awaits(plan) ? 0 : CALLS;
    for (int i = 0; i < calls && code == 0; i++)
        code = advance(self, ALL_CALLS);
    if (code != 0)
        return code;
    PyThreadState *released = PyEval_SaveThread();
    if (calls)
        sched_yield();
    for (int turn = calls ? YIELDS : 0; turn < YIELDS && code == 0; turn++) {
        for (int i = 0; i < SPINS && code == 0; i++) {
            code = pass(self, plan, NO_CALLS, &released);
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();
#elif defined(__aarch64__)
            __asm__ __volatile__("yield");
#endif
        }
        if (code == 0)
            sched_yield();
    }
    PyEval_RestoreThread(released);
    set_done(self, code == 1);
    return code;
}

static int complete(Rounds *self)
{
    int code = advance(self, ALL_CALLS);
    double began = profiling && code == 0 ? now() : 0;
    while (code == 0) {
        code = poll(self);
        if (code == 0 && (PyErr_CheckSignals() < 0 || hook(self, "_drive") < 0))
            code = -1;
        if (code == 0 && self->state != ACTIVE) { /* another thread has freed it */
            Py_XDECREF(refuse(self, "waited for"));
            code = -1;
        }
        if (code == 0)
            code = advance(self, ALL_CALLS);
    }
    if (began > 0)
        self->waiting += now() - began;
    return code < 0 ? -1 : 0;
}

static PyObject *answer(Rounds *self)
{
    PyObject *value = PyTuple_GetItem(self->answers, self->slot); /* borrowed */
    return value == NULL ? NULL : Py_NewRef(value);
}

static PyObject *status_of(PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    if (count + named > 1) {
        PyErr_SetString(PyExc_TypeError, "at most one argument is possible: status");
        return NULL;
    }
    if (named == 1) {
        PyObject *name = PyTuple_GetItem(names, 0);
        if (PyUnicode_CompareWithASCIIString(name, "status") != 0) {
            PyErr_Format(PyExc_TypeError, "no argument %R is known", name);
            return NULL;
        }
    }
    return count + named == 1 ? args[0] : Py_None;
}

static int fill_status(Rounds *self, PyObject *status)
{
    return status == Py_None ? 0 : tell(self, "_fill", status);
}

/* What Wait returns where no round is under way. */
static PyObject *without_round(Rounds *self, const char *verb, PyObject *status)
{
    PyObject *said = PyObject_CallMethod((PyObject *)self, "_inactive", "s", verb);
    if (said != NULL && fill_status(self, status) < 0)
        Py_CLEAR(said);
    return said;
}

/* All steps of a round have been executed: what follows, and the request becomes inactive. A step may
   have given the round up. */
static int finish(Rounds *self)
{
    if (self->state == BROKEN) {
        Py_XDECREF(refuse(self, "completed"));
        return -1;
    }
    if (delist(self) < 0 || (self->hooked && hook(self, "_after_wait") < 0))
        return -1;
    if (self->state == ACTIVE)
        self->state = INACTIVE;
    if (self->credit != NULL)
        self->credit->busy = 0;
    return 0;
}

static PyObject *Wait(Rounds *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *status = status_of(args, count, names);
    if (status == NULL)
        return NULL;
    if (forked)
        return refuse(self, "waited for in a forked child, whose memory is its parent's");
    if (self->state != ACTIVE || self->unready)
        return without_round(self, "waited for", status);
    double began = profiling ? now() : 0;
    if (self->hooked && hook(self, "_before_wait") < 0)
        return NULL; /* of this round nothing has been executed */
    if (lock(self) < 0)
        return NULL;
    if (self->state == ACTIVE && self->unready) { /* another thread has opened the next one */
        unlock(self);
        return without_round(self, "waited for", status);
    }
    if (self->state == ACTIVE) {
        if (!is_done(self) && complete(self) < 0)
            return give_up(self);
        if (finish(self) < 0)
            return give_up(self);
        if (began > 0)
            self->in_wait += now() - began;
    } else if (self->state != INACTIVE) { /* the thread that had the lock has met an error */
        unlock(self);
        return refuse(self, "waited for");
    }
    PyObject *value = answer(self); /* before another thread can start or free it */
    unlock(self);
    if (value != NULL && fill_status(self, status) < 0)
        Py_CLEAR(value);
    return value;
}

/* The calls that Test may make: those that wait for other ranks where it is this round's turn. */
static int calls_of_test(Rounds *self)
{
    if (!self->hooked)
        return ALL_CALLS;
    PyObject *said = PyObject_CallMethod((PyObject *)self, "_before_test", NULL);
    int turn = said == NULL ? -1 : PyObject_IsTrue(said);
    Py_XDECREF(said);
    return turn < 0 ? -1 : turn ? ALL_CALLS : LOCAL_CALLS;
}

static PyObject *tested_without_round(Rounds *self, PyObject *status)
{
    PyObject *said = without_round(self, "tested", status);
    Py_XDECREF(said);
    return said == NULL ? NULL : Py_NewRef(Py_True);
}

static PyObject *Test(Rounds *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *status = status_of(args, count, names);
    if (status == NULL)
        return NULL;
    if (forked)
        return refuse(self, "tested in a forked child, whose memory is its parent's");
    if (self->state != ACTIVE || self->unready)
        return tested_without_round(self, status);
    double began = profiling ? now() : 0;
    int level = calls_of_test(self);
    if (level < 0)
        return NULL;
    if (!try_lock(self)) { /* another thread is at it, perhaps in a long copy */
        if (is_inside(self) || hook(self, "_drive") < 0)
            return NULL;
        Py_RETURN_FALSE;
    }
    if (self->state == ACTIVE && self->unready) { /* another thread has opened the next one */
        unlock(self);
        return tested_without_round(self, status);
    }
    if (self->state == ACTIVE) {
        int code = is_done(self) ? 1 : advance(self, level);
        if (code == 0 && hook(self, "_drive") < 0)
            code = -1;
        if (code == 0)
            code = advance(self, level);
        if (code < 0 || (code == 1 && finish(self) < 0))
            return give_up(self);
        if (began > 0)
            self->in_wait += now() - began;
        if (code == 0) {
            unlock(self);
            Py_RETURN_FALSE;
        }
    } else if (self->state != INACTIVE) {
        unlock(self);
        return refuse(self, "tested");
    }
    unlock(self);
    return fill_status(self, status) < 0 ? NULL : Py_NewRef(Py_True);
}

/* -- for the request's own use -------------------------------------------------------------------- */

static PyObject *advance_round(Rounds *self, PyObject *calls)
{
    int level = (int)PyLong_AsLong(calls);
    if (level == -1 && PyErr_Occurred())
        return NULL;
    if (forked || !try_lock(self))
        Py_RETURN_FALSE;
    int code = 0;
    if (self->state == ACTIVE && !is_done(self) && !self->unready) {
        Plan *plan = current(self);
        long long before = steps_done(plan);
        code = advance(self, level);
        if (code < 0)
            breaks(self);
        else
            code = steps_done(plan) > before;
    }
    unlock(self);
    return code < 0 ? NULL : PyBool_FromLong(code);
}

/* Start a round that the caller fills in so many chunks. */
static PyObject *open_round(Rounds *self, PyObject *chunks)
{
    long count = PyLong_AsLong(chunks);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    if (!can_run(self, 1) || lock(self) < 0)
        return NULL;
    if (is_busy(self)) {
        unlock(self); /* another thread, or a signal handler, was faster */
        return refuse(self, "opened");
    }
    self->state = ACTIVE;
    reserve(self, 1);
    self->unready = (int)count;
    unlock(self);
    Py_RETURN_NONE;
}

/* One chunk less is missing; after the last one the round goes on as one that was started. */
static PyObject *fill_chunk(Rounds *self, PyObject *Py_UNUSED(nothing))
{
    if (self->unready > 1 && self->state == ACTIVE) {
        self->unready--;
        Py_RETURN_NONE;
    }
    if (lock(self) < 0)
        return NULL;
    /* another thread may have given the round up meanwhile */
    if (self->state != ACTIVE || !self->unready || forked) {
        unlock(self);
        return refuse(self, "told that a chunk is ready");
    }
    self->unready = 0;
    if (launch(self) < 0 || (!is_done(self) && enlist(self) < 0))
        return give_up(self);
    unlock(self);
    Py_RETURN_NONE;
}

/* What the request itself has met in the middle of a round. */
static PyObject *break_round(Rounds *self, PyObject *error)
{
    /* a step, or a handler of signals, may give its own round up: the call around it goes on */
    int inside = holds_lock(self);
    if (!inside)
        lock_unhandled(self);
    if (self->state == ACTIVE)
        break_with(self, error);
    if (!inside)
        unlock(self);
    Py_RETURN_NONE;
}

/* The request is freed: other threads that are inside leave, for which `unload` waits. */
static PyObject *retire(Rounds *self, PyObject *Py_UNUSED(nothing))
{
    __atomic_store_n(&self->state, FREED, __ATOMIC_RELAXED); /* the core's thread may look at it */
    Py_RETURN_NONE;
}

static PyObject *is_late_now(Rounds *self, PyObject *Py_UNUSED(nothing))
{
    if (!try_lock(self))
        Py_RETURN_TRUE; /* another thread is at it */
    int late = is_late(self);
    unlock(self);
    return PyBool_FromLong(late);
}

/* By chain of the active round, the step at which it stands and how many it has. */
static PyObject *stands(Rounds *self, PyObject *Py_UNUSED(nothing))
{
    if (self->plans == NULL || self->state != ACTIVE || self->unready || !try_lock(self))
        return PyList_New(0); /* the steps of a round that is being filled have not begun */
    Plan *plan = current(self);
    PyObject *list = PyList_New(plan->count);
    for (int i = 0; list != NULL && i < plan->count; i++) {
        PyObject *pair = Py_BuildValue("ii", plan->chains[i].here, plan->chains[i].count);
        if (pair == NULL || PyList_SetItem(list, i, pair) < 0)
            Py_CLEAR(list);
    }
    unlock(self);
    return list;
}

/* -- loading -------------------------------------------------------------------------------------- */

static void free_plans(Plan *plans, int count)
{
    for (int p = 0; p < count; p++) {
        Plan *plan = &plans[p];
        for (int c = 0; c < plan->count; c++) {
            for (int s = 0; s < plan->chains[c].count; s++) {
                Py_XDECREF(plan->chains[c].steps[s].call);
                PyMem_Free(plan->chains[c].steps[s].box);
            }
            PyMem_Free(plan->chains[c].steps);
        }
        PyMem_Free(plan->chains);
        PyMem_Free(plan->open);
    }
    PyMem_Free(plans);
}

/* They are not the request's any more when a destructor runs. */
static void drop_plans(Rounds *self)
{
    Plan *plans = self->plans;
    int count = self->plan_count;
    if (self->watched)
        forget_round(self);
    self->watched = self->listed = 0;
    self->plans = NULL;
    self->plan_count = 0;
    free_plans(plans, count);
}

int as_pointer(PyObject *number, void *place)
{
    void *pointer = PyLong_AsVoidPtr(number);
    memcpy(place, &pointer, sizeof pointer);
    return !PyErr_Occurred();
}

Box *new_box(Py_ssize_t item, PyObject *shape, PyObject *to, PyObject *from)
{
    Py_ssize_t axes = PyTuple_Size(shape);
    if (axes < 1 || axes > MOST_AXES || PyTuple_Size(to) != axes || PyTuple_Size(from) != axes) {
        PyErr_Format(PyExc_ValueError, "a box of %zd axes", axes);
        return NULL;
    }
    Box *box = PyMem_Calloc(1, sizeof *box + (size_t)axes * sizeof *box->axis);
    if (box == NULL)
        return (Box *)PyErr_NoMemory();
    box->axes = (int)axes;
    box->item = item;
    for (int i = 0; i < box->axes; i++) {
        box->axis[i].extent = PyLong_AsSsize_t(PyTuple_GetItem(shape, i));
        box->axis[i].to = PyLong_AsSsize_t(PyTuple_GetItem(to, i));
        box->axis[i].from = PyLong_AsSsize_t(PyTuple_GetItem(from, i));
        if (box->axis[i].extent < 1 && !PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "a box without elements");
    }
    if (PyErr_Occurred()) {
        PyMem_Free(box);
        return NULL;
    }
    return box;
}

static int read_box(Step *step, PyObject *fields)
{
    int op;
    Py_ssize_t item;
    PyObject *shape, *to, *from;
    if (!PyArg_ParseTuple(fields, "iO&O&nO!O!O!", &op, as_pointer, &step->to, as_pointer,
                          &step->from, &item, &PyTuple_Type, &shape, &PyTuple_Type, &to,
                          &PyTuple_Type, &from))
        return -1;
    Box *box = step->box = new_box(item, shape, to, from);
    if (box == NULL)
        return -1;
    step->count = item;
    for (int i = 0; i < box->axes; i++)
        step->count *= box->axis[i].extent;
    return 0;
}

static int read_reduction(Step *step, PyObject *fields)
{
    int op, operation, type;
    Py_ssize_t item;
    if (!PyArg_ParseTuple(fields, "iO&O&O&nnii", &op, as_pointer, &step->to, as_pointer, &step->from,
                          as_pointer, &step->right, &step->count, &item, &operation, &type))
        return -1;
    step->scale = item;
    step->fold = find_fold(operation, type);
    if (step->fold == NULL)
        PyErr_Format(PyExc_ValueError, "no reduction %d of type %d", operation, type);
    return step->fold == NULL ? -1 : 0;
}

static int read_step(Step *step, PyObject *fields)
{
    int op, read;
    Py_ssize_t item = 0;
    long long scale = 0, shift = 0;
    if (!PyTuple_Check(fields) || PyTuple_Size(fields) < 2) {
        PyErr_SetString(PyExc_TypeError, "a step is a tuple");
        return -1;
    }
    step->op = op = (int)PyLong_AsLong(PyTuple_GetItem(fields, 0));
    if (PyErr_Occurred())
        return -1;
    switch (op) {
    case COPY:
        read = PyArg_ParseTuple(fields, "iO&O&n", &op, as_pointer, &step->to, as_pointer,
                                &step->from, &step->count);
        break;
    case BOX:
        return read_box(step, fields);
    case GATHER:
        read = PyArg_ParseTuple(fields, "iO&O&O&nn", &op, as_pointer, &step->to, as_pointer,
                                &step->from, as_pointer, &step->right, &step->count, &item);
        step->scale = item;
        break;
    case REDUCE:
        return read_reduction(step, fields);
    case RAISE:
    case AWAIT:
        read = PyArg_ParseTuple(fields, "iO&LL", &op, as_pointer, &step->to, &scale, &shift);
        step->scale = scale;
        step->shift = shift;
        if (read && (uintptr_t)step->to % sizeof(int64_t)) {
            PyErr_SetString(PyExc_ValueError, "a counter that is not aligned");
            return -1;
        }
        break;
    case CALL:
        read = PyArg_ParseTuple(fields, "iOi", &op, &step->call, &step->flags);
        Py_XINCREF(step->call);
        break;
    default:
        PyErr_Format(PyExc_ValueError, "no step %d is known", op);
        return -1;
    }
    return read ? 0 : -1;
}

static int serves_others(const Step *step)
{
    return step->op == RAISE || (step->op == CALL && step->flags & SERVES);
}

/* Whether a chain may wait here in Start. */
static int may_stop(const Step *step)
{
    return step->op == AWAIT || (step->op == CALL && (step->flags & (ONCE | LATER)) != ONCE);
}

static int read_chain(Chain *chain, PyObject *steps)
{
    Py_ssize_t count = PySequence_Size(steps);
    if (count < 0)
        return -1;
    chain->steps = PyMem_Calloc((size_t)count + 1, sizeof *chain->steps);
    if (chain->steps == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    chain->last_serving = chain->last_call = -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *fields = PySequence_GetItem(steps, i);
        if (fields == NULL)
            return -1;
        chain->count = (int)i + 1;
        int code = read_step(&chain->steps[i], fields);
        Py_DECREF(fields);
        if (code < 0)
            return -1;
        if (serves_others(&chain->steps[i]))
            chain->last_serving = (int)i;
    }
    int stops = 0;
    for (int i = 0; i <= chain->last_serving; i++) {
        stops |= may_stop(&chain->steps[i]);
        if (chain->steps[i].op == CALL) {
            chain->last_call = i;
            chain->stops_before_call = stops;
        }
    }
    return 0;
}

static int read_plan(Plan *plan, PyObject *chains)
{
    Py_ssize_t count = PySequence_Size(chains);
    if (count < 0)
        return -1;
    plan->chains = PyMem_Calloc((size_t)count + 1, sizeof *plan->chains);
    plan->open = PyMem_Calloc((size_t)count + 1, sizeof *plan->open);
    if (plan->chains == NULL || plan->open == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *steps = PySequence_GetItem(chains, i);
        if (steps == NULL)
            return -1;
        plan->count = (int)i + 1;
        int code = read_chain(&plan->chains[i], steps);
        Py_DECREF(steps);
        if (code < 0)
            return -1;
        for (int s = 0; s < plan->chains[i].count; s++) {
            const Step *step = &plan->chains[i].steps[s];
            if (step->op == COPY || step->op == BOX)
                plan->bytes += step->count;
            else if (step->op == REDUCE || step->op == GATHER)
                plan->bytes += step->count * (Py_ssize_t)step->scale;
            plan->blocks |= step->op == CALL && step->flags & BLOCKS;
        }
        plan->needs_calls |= plan->chains[i].stops_before_call;
    }
    return 0;
}

/* _load(plans, answers, credit, keep): an answer per slot, and a plan, then those of filled rounds. */
static PyObject *load(Rounds *self, PyObject *args)
{
    PyObject *plans, *answers, *credit, *keep;
    if (!PyArg_ParseTuple(args, "OO!OO", &plans, &PyTuple_Type, &answers, &credit, &keep))
        return NULL;
    Py_ssize_t count = PySequence_Size(plans), slots = PyTuple_Size(answers);
    if (count < 0)
        return NULL;
    if (self->state != INACTIVE || slots < 1 || (count != slots && count != 2 * slots))
        return PyErr_Format(PyExc_ValueError, "%zd plans for %zd slots", count, slots);
    if (credit != Py_None && !PyObject_TypeCheck(credit, credit_type))
        return PyErr_Format(PyExc_TypeError, "no credit: %R", credit);
    Plan *fresh = PyMem_Calloc((size_t)count, sizeof *fresh);
    if (fresh == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *chains = PySequence_GetItem(plans, i);
        int code = chains == NULL ? -1 : read_plan(&fresh[i], chains);
        Py_XDECREF(chains);
        if (code < 0) {
            free_plans(fresh, (int)i + 1);
            return NULL;
        }
    }
    drop_plans(self);
    self->plans = fresh;
    self->plan_count = (int)count;
    self->slots = (int)slots;
    self->needs_calls = self->blocks = 0;
    for (int p = 0; p < self->plan_count; p++) {
        self->needs_calls |= fresh[p].needs_calls;
        self->blocks |= fresh[p].blocks;
    }
    assign((PyObject **)&self->credit, credit == Py_None ? NULL : credit);
    assign(&self->answers, answers);
    assign(&self->keep, keep);
    Py_RETURN_NONE;
}

static PyObject *refuse_inside(Rounds *self, PyObject *Py_UNUSED(nothing))
{
    if (is_inside(self))
        return NULL;
    Py_RETURN_NONE;
}

static int rounds_clear(Rounds *self)
{
    drop_plans(self);
    assign(&self->answers, NULL);
    assign(&self->keep, NULL);
    assign((PyObject **)&self->credit, NULL);
    return 0;
}

/* Drop every view of memory, when no other thread executes steps. */
static PyObject *unload(Rounds *self, PyObject *Py_UNUSED(nothing))
{
    if (is_inside(self))
        return NULL;
    lock_unhandled(self); /* all ranks have agreed to free it */
    drop_plans(self);
    unlock(self);
    rounds_clear(self);
    Py_RETURN_NONE;
}

static PyObject *set_credit(Rounds *self, PyObject *credit)
{
    if (!PyObject_TypeCheck(credit, credit_type))
        return PyErr_Format(PyExc_TypeError, "no credit: %R", credit);
    assign((PyObject **)&self->credit, credit);
    Py_RETURN_NONE;
}

static int rounds_traverse(Rounds *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    for (int p = 0; p < self->plan_count; p++)
        for (int c = 0; c < self->plans[p].count; c++)
            for (int s = 0; s < self->plans[p].chains[c].count; s++)
                Py_VISIT(self->plans[p].chains[c].steps[s].call);
    Py_VISIT(self->credit);
    Py_VISIT(self->answers);
    Py_VISIT(self->keep);
    return 0;
}

static void rounds_dealloc(PyObject *self)
{
    deallocate(self, (inquiry)rounds_clear);
}

static PyObject *get_answers(Rounds *self, void *Py_UNUSED(closure))
{
    return self->answers == NULL ? PyTuple_New(0) : Py_NewRef(self->answers);
}

static PyObject *get_done(Rounds *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(is_done(self));
}

/* as in program.py, which is read where nothing was compiled */
static const char start_doc[] =
    "Start($self, /)\n"
    "--\n"
    "\n"
    "Begin a round, as MPI_Start does.\n"
    "\n"
    "Local where the method's rounds may start in any order. Where they have one order on all\n"
    "ranks it may wait for other ranks, as a collective call does.\n"
    "\n"
    "Raises\n"
    "------\n"
    "RequestError\n"
    "    Where a round is active, has been broken, or the request has been freed.\n"
    "\n"
    "Notes\n"
    "-----\n"
    "The send data must not be written to, and a receive array not read, until the round is\n"
    "complete.";

static const char wait_doc[] =
    "Wait($self, /, status=None)\n"
    "--\n"
    "\n"
    "Complete the round that is active, as MPI_Wait does.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "status\n"
    "    An MPI.Status that is to tell how the round ended.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "The receive array, or the slot that holds the data until the round after the next one;\n"
    "None on a rank that receives nothing.\n"
    "\n"
    "Raises\n"
    "------\n"
    "RequestError\n"
    "    Where the round has been broken, a filled round is not ready, or the request has\n"
    "    been freed.\n"
    "\n"
    "Notes\n"
    "-----\n"
    "It returns when this rank has received all that the round brings it, and its send data\n"
    "may be written to again; at once where no round is active.";

static const char test_doc[] =
    "Test($self, /, status=None)\n"
    "--\n"
    "\n"
    "Local. Go on with the active round, and tell whether it is complete, as MPI_Test does.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "status\n"
    "    An MPI.Status that is to tell how the round ended, where it has.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "Whether the round is complete.\n"
    "\n"
    "Raises\n"
    "------\n"
    "RequestError\n"
    "    Where the round has been broken, or the request has been freed.\n"
    "\n"
    "Notes\n"
    "-----\n"
    "True means what :meth:`Wait` means, and where no round is active it is true at once. It\n"
    "waits for nobody, but in what MPI cannot test: the fence of a strictly ordered method off a\n"
    "node, of this request or of one that was started before it.";

static PyMethodDef rounds_methods[] = {
    {"Start", (PyCFunction)Start, METH_NOARGS, start_doc},
    {"Wait", (PyCFunction)(void (*)(void))Wait, METH_FASTCALL | METH_KEYWORDS, wait_doc},
    {"Test", (PyCFunction)(void (*)(void))Test, METH_FASTCALL | METH_KEYWORDS, test_doc},
    {"check_start", (PyCFunction)check_start, METH_NOARGS, NULL},
    {"advance", (PyCFunction)advance_round, METH_O, NULL},
    {"late", (PyCFunction)is_late_now, METH_NOARGS, NULL},
    {"stands", (PyCFunction)stands, METH_NOARGS, NULL},
    {"_open", (PyCFunction)open_round, METH_O, NULL},
    {"_fill_chunk", (PyCFunction)fill_chunk, METH_NOARGS, NULL},
    {"_break", (PyCFunction)break_round, METH_O, NULL},
    {"_load", (PyCFunction)load, METH_VARARGS, NULL},
    {"_unload", (PyCFunction)unload, METH_NOARGS, NULL},
    {"_retire", (PyCFunction)retire, METH_NOARGS, NULL},
    {"_refuse_inside", (PyCFunction)refuse_inside, METH_NOARGS, NULL},
    {"_count_with", (PyCFunction)set_credit, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef rounds_members[] = {
    {"_state", T_INT, offsetof(Rounds, state), READONLY, NULL},
    {"_by_thread", T_INT, offsetof(Rounds, by_thread), 0, NULL},
    {"_hooked", T_INT, offsetof(Rounds, hooked), 0, NULL},
    {"_by_python", T_INT, offsetof(Rounds, by_python), 0, NULL},
    {"_needs_calls", T_INT, offsetof(Rounds, needs_calls), READONLY, NULL},
    {"_blocks", T_INT, offsetof(Rounds, blocks), READONLY, NULL},
    {"_calling", T_INT, offsetof(Rounds, calling), READONLY, NULL},
    {"_opening", T_INT, offsetof(Rounds, opening), 0, NULL},
    {"_freeing", T_INT, offsetof(Rounds, freeing), 0, NULL},
    {"in_start", T_DOUBLE, offsetof(Rounds, in_start), READONLY, NULL},
    {"in_wait", T_DOUBLE, offsetof(Rounds, in_wait), READONLY, NULL},
    {"waiting", T_DOUBLE, offsetof(Rounds, waiting), READONLY, NULL},
    {"helped", T_LONGLONG, offsetof(Rounds, helped), READONLY, NULL},
    {"_unready", T_INT, offsetof(Rounds, unready), READONLY, NULL},
    {"_slot", T_INT, offsetof(Rounds, slot), READONLY, NULL},
    {"_number", T_LONGLONG, offsetof(Rounds, number), READONLY, NULL},
    {"rounds", T_LONGLONG, offsetof(Rounds, rounds), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef rounds_getters[] = {
    {"_answers", (getter)get_answers, NULL, NULL, NULL},
    {"_done", (getter)get_done, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot rounds_slots[] = {
    {Py_tp_dealloc, rounds_dealloc},
    {Py_tp_traverse, rounds_traverse},
    {Py_tp_clear, rounds_clear},
    {Py_tp_methods, rounds_methods},
    {Py_tp_members, rounds_members},
    {Py_tp_getset, rounds_getters},
    {Py_tp_new, PyType_GenericNew},
    {0, NULL},
};

static PyType_Spec rounds_spec = {
    "onesided.collectives._core.Rounds", sizeof(Rounds), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, rounds_slots,
};

/* -- the credit ----------------------------------------------------------------------------------- */

/* _connect(cells): where sources look. */
static PyObject *credit_connect(Credit *self, PyObject *arrays)
{
    Py_ssize_t count = PySequence_Size(arrays);
    if (count < 0)
        return NULL;
    int64_t **cells = PyMem_Calloc((size_t)count + 1, sizeof *cells);
    if (cells == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *array = PySequence_GetItem(arrays, i);
        cells[i] = array == NULL ? NULL : memory_of(array);
        Py_XDECREF(array);
        if (PyErr_Occurred()) {
            PyMem_Free(cells);
            return NULL;
        }
    }
    PyMem_Free(self->cells);
    self->cells = cells;
    self->count = (int)count;
    assign(&self->keep, arrays);
    Py_RETURN_NONE;
}

static PyObject *credit_grant(Credit *self, PyObject *Py_UNUSED(nothing))
{
    if (self->granted == self->number)
        grant(self, self->number + 1);
    Py_RETURN_NONE;
}

static int credit_traverse(Credit *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->keep);
    return 0;
}

static int credit_clear(Credit *self)
{
    self->count = 0;
    assign(&self->keep, NULL);
    return 0;
}

static void credit_dealloc(PyObject *self)
{
    PyMem_Free(((Credit *)self)->cells);
    deallocate(self, (inquiry)credit_clear);
}

static PyMethodDef credit_methods[] = {
    {"_connect", (PyCFunction)credit_connect, METH_O, NULL},
    {"grant", (PyCFunction)credit_grant, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef credit_members[] = {
    {"number", T_LONGLONG, offsetof(Credit, number), 0, NULL},
    {"granted", T_LONGLONG, offsetof(Credit, granted), 0, NULL},
    {"busy", T_INT, offsetof(Credit, busy), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot credit_slots[] = {
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, credit_dealloc},
    {Py_tp_traverse, credit_traverse},
    {Py_tp_clear, credit_clear},
    {Py_tp_methods, credit_methods},
    {Py_tp_members, credit_members},
    {0, NULL},
};

static PyType_Spec credit_spec = {
    "onesided.collectives._core.Credit", sizeof(Credit), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, credit_slots,
};

int add_rounds(PyObject *module)
{
    credit_type = (PyTypeObject *)PyType_FromSpec(&credit_spec);
    if (credit_type == NULL ||
        PyModule_AddObjectRef(module, "Credit", (PyObject *)credit_type) < 0 ||
        add_type(module, "Rounds", &rounds_spec) < 0 ||
        PyModule_AddFunctions(module, functions) < 0 ||
        pthread_atfork(NULL, NULL, after_fork_in_child) != 0)
        return -1;
    return 0;
}
