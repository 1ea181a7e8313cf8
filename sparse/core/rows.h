/* Products of compressed rows, for entries of type T and indices of type I: included by rows.c. */

static inline __attribute__((always_inline)) T NAME(row)(
    Py_ssize_t from, Py_ssize_t to, const I *column, const T *value, const T *own)
{
    T a = ZERO, b = ZERO, c = ZERO, d = ZERO;
    for (; from + 4 <= to; from += 4) {
        a = ADDED(a, value[from], own[column[from]]);
        b = ADDED(b, value[from + 1], own[column[from + 1]]);
        c = ADDED(c, value[from + 2], own[column[from + 2]]);
        d = ADDED(d, value[from + 3], own[column[from + 3]]);
    }
    switch (to - from) {
    case 3: c = ADDED(c, value[from + 2], own[column[from + 2]]); /* fall through */
    case 2: b = ADDED(b, value[from + 1], own[column[from + 1]]); /* fall through */
    case 1: a = ADDED(a, value[from], own[column[from]]);
    }
    return SUM(SUM(a, b), SUM(c, d));
}

static void NAME(interior)(const Csr *csr, const Runs *runs, const T *own, T *y)
{
    const I *start = (const I *)csr->starts, *column = (const I *)csr->columns;
    const T *value = (const T *)csr->values;
    for (Py_ssize_t run = 0; run < runs->count; run++)
        for (Py_ssize_t row = runs->ends[2 * run]; row < runs->ends[2 * run + 1]; row++)
            y[row] = NAME(row)(start[row], start[row + 1], column, value, own);
}

static void NAME(boundary)(const Csr *csr, const Runs *runs, const T *own, const T *ghosts, T *y)
{
    const I *start = (const I *)csr->starts, *column = (const I *)csr->columns;
    const T *value = (const T *)csr->values;
    const I cut = (I)csr->own;
#define X(place) (column[place] < cut ? own + column[place] : ghosts + (column[place] - cut))
    for (Py_ssize_t run = 0; run < runs->count; run++)
        for (Py_ssize_t row = runs->ends[2 * run]; row < runs->ends[2 * run + 1]; row++) {
            T a = ZERO, b = ZERO;
            Py_ssize_t place = start[row], last = start[row + 1];
            for (; place + 2 <= last; place += 2) {
                a = ADDED(a, value[place], *X(place));
                b = ADDED(b, value[place + 1], *X(place + 1));
            }
            if (place < last)
                a = ADDED(a, value[place], *X(place));
            y[row] = SUM(a, b);
        }
}

static inline __attribute__((always_inline)) void NAME(vectors)(
    Py_ssize_t from, Py_ssize_t to, I cut, const I *column, const T *value, const T *own,
    const T *ghosts, T *y, Py_ssize_t k, int count)
{
    T sums[8];
    for (int i = 0; i < count; i++)
        sums[i] = ZERO;
    for (Py_ssize_t place = from; place < to; place++) {
        const T *x = column[place] < cut ? own + column[place] * k
                                         : ghosts + (column[place] - cut) * k;
        for (int i = 0; i < count; i++)
            sums[i] = ADDED(sums[i], value[place], x[i]);
    }
    for (int i = 0; i < count; i++)
        y[i] = sums[i];
}

static void NAME(blocks)(const Csr *csr, const Runs *runs, Py_ssize_t k, const T *own,
                         const T *ghosts, T *y)
{
    const I *start = (const I *)csr->starts, *column = (const I *)csr->columns;
    const T *value = (const T *)csr->values;
    const I cut = (I)csr->own;
#define VECTORS(count) \
    NAME(vectors)(start[row], start[row + 1], cut, column, value, own + i, ghosts + i, \
                  y + row * k + i, k, count)
    for (Py_ssize_t run = 0; run < runs->count; run++)
        for (Py_ssize_t row = runs->ends[2 * run]; row < runs->ends[2 * run + 1]; row++) {
            Py_ssize_t i = 0;
            for (; i + 8 <= k; i += 8)
                VECTORS(8);
            for (; i + 2 <= k; i += 2)
                VECTORS(2);
            if (i < k)
                VECTORS(1);
        }
#undef VECTORS
#undef X
}

static void NAME(product)(const Csr *csr, const Runs *runs, int boundary, Py_ssize_t k,
                          const void *own, const void *ghosts, void *y)
{
    if (k != 1)
        NAME(blocks)(csr, runs, k, own, ghosts, y);
    else if (boundary)
        NAME(boundary)(csr, runs, own, ghosts, y);
    else
        NAME(interior)(csr, runs, own, y);
}

#undef I
#undef NAME
