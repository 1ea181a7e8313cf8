/* Products of compressed rows, for entries of type T and indices of type I: included by rows.c. */

INLINE T NAME(row)(
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
#undef X
}

INLINE void NAME(vectors)(
    Py_ssize_t from, Py_ssize_t to, I cut, const I *column, const T *value, const T *own,
    const T *ghosts, T *y, Py_ssize_t k, int count)
{
#define X(place) (column[place] < cut ? own + column[place] * k : ghosts + (column[place] - cut) * k)
    T sums[8];
    for (int i = 0; i < count; i++)
        sums[i] = ZERO;
    for (Py_ssize_t place = from; place < to; place++) {
        const T *x = X(place);
        for (int i = 0; i < count; i++)
            sums[i] = ADDED(sums[i], value[place], x[i]);
    }
    for (int i = 0; i < count; i++)
        y[i] = sums[i];
#undef X
}

INLINE void NAME(any_blocks)(const Csr *csr, const Runs *runs, Py_ssize_t k, const T *own,
                             const T *ghosts, T *y)
{
    const I *start = (const I *)csr->starts, *column = (const I *)csr->columns;
    const T *value = (const T *)csr->values;
    const I cut = (I)csr->own;
#define COLUMNS(count) \
    NAME(vectors)(start[row], start[row + 1], cut, column, value, own + i, ghosts + i, \
                  y + row * k + i, k, count)
    for (Py_ssize_t run = 0; run < runs->count; run++)
        for (Py_ssize_t row = runs->ends[2 * run]; row < runs->ends[2 * run + 1]; row++) {
            Py_ssize_t i = 0;
            for (; i + 8 <= k; i += 8)
                COLUMNS(8);
            for (; i + 2 <= k; i += 2)
                COLUMNS(2);
            if (i < k)
                COLUMNS(1);
        }
#undef COLUMNS
}

/* Adds and multiplies are those of C, so all units give the same bits. */
#define BLOCKS(name, unit) \
    unit static void NAME(name)(const Csr *csr, const Runs *runs, Py_ssize_t k, const T *own, \
                                const T *ghosts, T *y) \
    { \
        NAME(any_blocks)(csr, runs, k, own, ghosts, y); \
    }
BLOCKS(blocks, )
#ifdef VECTORS
BLOCKS(blocks_avx2, AVX2)
BLOCKS(blocks_avx512, AVX512)
#endif
#undef BLOCKS

/* y = A x for k vectors, by the vector units that there are. */
static void NAME(product)(const Csr *csr, const Runs *runs, int boundary, Py_ssize_t k,
                          const void *own, const void *ghosts, void *y)
{
#ifdef VECTORS
    if (k != 1 && csr->units == 2)
        NAME(blocks_avx512)(csr, runs, k, own, ghosts, y);
    else if (k != 1 && csr->units)
        NAME(blocks_avx2)(csr, runs, k, own, ghosts, y);
    else
#endif
    if (k != 1)
        NAME(blocks)(csr, runs, k, own, ghosts, y);
    else if (boundary)
        NAME(boundary)(csr, runs, own, ghosts, y);
    else
        NAME(interior)(csr, runs, own, y);
}

#undef I
