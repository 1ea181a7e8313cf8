/* Rows in slices: SELL-C-sigma (M. Kreutzer et al., SIAM J. Sci. Comput. 36(5), 2014), with C = 8.

   Rows of like lengths, sorted within a window, lie entry beside entry, so that a vector unit works
   on 8 of them at once and foresees where they end. A long row has all lanes for itself. Where the
   columns of a slice are near each other their numbers have 16 bits, and where they follow each other
   in every step, as in the matrices of grids, only the first is kept. Lanes that have no more entries
   are masked: nothing is multiplied that is not in the matrix, so infinities stay where they are. */

#define _DEFAULT_SOURCE
#include "product.h"
#include <sys/mman.h>
#include <time.h>

#ifdef VECTORS
#include <cpuid.h>
#include <immintrin.h>
#endif

enum { WINDOW = 1 << 12, LONG = 128, NOTHING = 0xFFFF };

/* Bytes by which entries are asked for before they are used. */
enum { AHEAD = 2048 };

/* -- products ------------------------------------------------------------------------------------- */

/* Bytes of the columns of a step. */
static const uint8_t widths[FORMS] = {[WIDE] = 4 * LANES, [NARROW] = 2 * LANES, [DENSE] = 4};

/* The product `name` of slices of T. V: what holds the sums of all lanes. STEP(sums, x, value, column,
   form, ragged): the sums and one entry more; PLUS(V, V), SPREAD(lanes, V): to memory. */
#define MULTIPLIER(name, TARGET, T, ALIGNED, V, NONE, STEP, PLUS, SPREAD) \
    TARGET INLINE V name##_part(V sums, const Slice *slice, int part, int form, const T *x, \
                                const char **columns, const T **values) \
    { \
        const Py_ssize_t width = widths[form]; \
        const char *column = *columns; \
        const T *value = *values; \
        x += slice->base[part]; \
        int32_t step = slice->full[part]; \
        V others = NONE; \
        for (; step >= 2; step -= 2) { \
            __builtin_prefetch((const char *)value + AHEAD); \
            __builtin_prefetch((const char *)(value + LANES) + AHEAD); \
            __builtin_prefetch(column + AHEAD / 4); \
            sums = STEP(sums, x, value, column, form, 0); \
            others = STEP(others, x, value + LANES, column + width, form, 0); \
            column += 2 * width; \
            value += 2 * LANES; \
        } \
        if (step) { \
            sums = STEP(sums, x, value, column, form, 0); \
            column += width; \
            value += LANES; \
        } \
        for (step = form == DENSE ? 0 : slice->ragged[part]; step > 0; step--) { \
            others = STEP(others, x, value, column, form, 1); \
            column += width; \
            value += LANES; \
        } \
        *columns = column; \
        *values = value; \
        return PLUS(sums, others); \
    } \
    TARGET INLINE V name##_slice(const Slice *slice, int form, const T *own, const T *ghosts, \
                                 const char **columns, const T **values) \
    { \
        V sums = name##_part(NONE, slice, 0, form, own, columns, values); \
        if (slice->full[1] | slice->ragged[1]) \
            sums = name##_part(sums, slice, 1, form, ghosts, columns, values); \
        return sums; \
    } \
    TARGET static void name(const Slices *slices, const void *own, const void *ghosts, void *result) \
    { \
        const char *column = slices->columns; \
        const T *value = (const T *)slices->values; \
        T *y = result; \
        for (Py_ssize_t i = 0; i < slices->count; i++) { \
            const Slice *slice = slices->slices + i; \
            V sums; \
            if (slice->form == NARROW) \
                sums = name##_slice(slice, NARROW, own, ghosts, &column, &value); \
            else if (slice->form == DENSE) \
                sums = name##_slice(slice, DENSE, own, ghosts, &column, &value); \
            else \
                sums = name##_slice(slice, WIDE, own, ghosts, &column, &value); \
            ALIGNED lanes[LANES]; \
            SPREAD(lanes, sums); \
            const int32_t *numbers = slices->numbers + LANES * i; \
            if (slice->along) \
                y[slice->row] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + \
                                ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7])); \
            else if (slice->straight && slice->lanes == LANES) \
                memcpy(y + slice->row, lanes, sizeof lanes); \
            else \
                for (int lane = 0; lane < slice->lanes; lane++) \
                    y[numbers[lane]] = lanes[lane]; \
        } \
    }

/* In plain C. */
#define PLAIN(T, ALIGNED) \
    typedef struct { ALIGNED of[LANES]; } T##_lanes; \
    INLINE T##_lanes T##_step(T##_lanes sums, const T *x, const T *value, const char *columns, \
                              int form, int ragged) \
    { \
        for (int lane = 0; lane < LANES; lane++) { \
            int32_t column = form == NARROW  ? ((const uint16_t *)columns)[lane] \
                             : form == DENSE ? *(const int32_t *)columns + lane \
                                             : ((const int32_t *)columns)[lane]; \
            if (!ragged || column != (form == NARROW ? NOTHING : -1)) \
                sums.of[lane] += value[lane] * x[column]; \
        } \
        return sums; \
    } \
    INLINE T##_lanes T##_plus(T##_lanes a, T##_lanes b) \
    { \
        for (int lane = 0; lane < LANES; lane++) \
            a.of[lane] += b.of[lane]; \
        return a; \
    } \
    MULTIPLIER(T##_plain, , T, ALIGNED, T##_lanes, (T##_lanes){{0}}, T##_step, T##_plus, PLAIN_SPREAD)
#define PLAIN_SPREAD(lanes, sums) memcpy(lanes, sums.of, sizeof lanes)

PLAIN(f4, float)
PLAIN(f8, double)

#ifdef VECTORS

AVX2 INLINE __m256i columns_of(const char *columns, int form)
{
    return form == NARROW ? _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)columns))
                          : _mm256_loadu_si256((const __m256i *)columns);
}

/* All bits of the lanes that have an entry. */
AVX2 INLINE __m256i present(__m256i columns, int form)
{
    return form == NARROW ? _mm256_cmpgt_epi32(_mm256_set1_epi32(NOTHING), columns)
                          : _mm256_cmpgt_epi32(columns, _mm256_set1_epi32(-1));
}

AVX2 INLINE __m256 f4_avx2_step(__m256 sums, const f4 *x, const f4 *value, const char *columns,
                                int form, int ragged)
{
    __m256 entries = _mm256_loadu_ps((const float *)value);
    if (form == DENSE)
        return _mm256_fmadd_ps(
            entries, _mm256_loadu_ps((const float *)x + *(const int32_t *)columns), sums);
    __m256i column = columns_of(columns, form);
    __m256 some = _mm256_castsi256_ps(ragged ? present(column, form) : _mm256_set1_epi32(-1));
    __m256 found = _mm256_mask_i32gather_ps(_mm256_setzero_ps(), (const float *)x, column, some, 4);
    return _mm256_fmadd_ps(entries, found, sums);
}
MULTIPLIER(f4_avx2, AVX2, f4, float, __m256, _mm256_setzero_ps(), f4_avx2_step, _mm256_add_ps,
           _mm256_storeu_ps)

typedef struct { __m256d low, high; } f8_pair;

AVX2 INLINE __m256d f8_half(__m256d sums, const f8 *x, const f8 *value, __m128i column,
                            __m128i some)
{
    __m256d mask = _mm256_castsi256_pd(_mm256_cvtepi32_epi64(some));
    __m256d found = _mm256_mask_i32gather_pd(_mm256_setzero_pd(), (const double *)x, column, mask, 8);
    return _mm256_fmadd_pd(_mm256_loadu_pd((const double *)value), found, sums);
}

AVX2 INLINE f8_pair f8_avx2_step(f8_pair sums, const f8 *x, const f8 *value, const char *columns,
                                 int form, int ragged)
{
    if (form == DENSE) {
        const double *dense = (const double *)x + *(const int32_t *)columns;
        const double *entries = (const double *)value;
        sums.low = _mm256_fmadd_pd(_mm256_loadu_pd(entries), _mm256_loadu_pd(dense), sums.low);
        sums.high =
            _mm256_fmadd_pd(_mm256_loadu_pd(entries + 4), _mm256_loadu_pd(dense + 4), sums.high);
        return sums;
    }
    __m256i column = columns_of(columns, form);
    __m256i some = ragged ? present(column, form) : _mm256_set1_epi32(-1);
    sums.low = f8_half(sums.low, x, value, _mm256_castsi256_si128(column),
                       _mm256_castsi256_si128(some));
    sums.high = f8_half(sums.high, x, value + 4, _mm256_extracti128_si256(column, 1),
                        _mm256_extracti128_si256(some, 1));
    return sums;
}
AVX2 INLINE f8_pair f8_avx2_plus(f8_pair a, f8_pair b)
{
    return (f8_pair){_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)};
}
#define F8_SPREAD(lanes, sums) (_mm256_storeu_pd(lanes, sums.low), _mm256_storeu_pd(lanes + 4, sums.high))
#define F8_NONE ((f8_pair){_mm256_setzero_pd(), _mm256_setzero_pd()})
MULTIPLIER(f8_avx2, AVX2, f8, double, f8_pair, F8_NONE, f8_avx2_step, f8_avx2_plus, F8_SPREAD)

AVX512 INLINE __m512d f8_avx512_step(__m512d sums, const f8 *x, const f8 *value,
                                     const char *columns, int form, int ragged)
{
    __m512d entries = _mm512_loadu_pd((const double *)value);
    if (form == DENSE)
        return _mm512_fmadd_pd(
            entries, _mm512_loadu_pd((const double *)x + *(const int32_t *)columns), sums);
    __m256i column = columns_of(columns, form);
    __mmask8 some = 0xFF;
    if (ragged)
        some = _mm256_cmpneq_epi32_mask(column, _mm256_set1_epi32(form == NARROW ? NOTHING : -1));
    __m512d found = _mm512_mask_i32gather_pd(_mm512_setzero_pd(), some, column, (const double *)x, 8);
    return _mm512_fmadd_pd(entries, found, sums);
}
MULTIPLIER(f8_avx512, AVX512, f8, double, __m512d, _mm512_setzero_pd(), f8_avx512_step,
           _mm512_add_pd, _mm512_storeu_pd)

/* The same with a load for each element. Gathers of AMD's, and of Intel's where what they leak is
   prevented, take longer than that; where some lanes have no entry they stay. */
INLINE void all_columns(int32_t *found, const char *columns, int form)
{
    uint64_t words[LANES / 2];
    memcpy(words, columns, widths[form]);
    for (int lane = 0; lane < LANES; lane++)
        found[lane] = form == NARROW ? (int32_t)(words[lane / 4] >> 16 * (lane % 4) & 0xFFFF)
                                     : (int32_t)(words[lane / 2] >> 32 * (lane % 2));
}
#define FOUR(x, c) (x)[(c)[3]], (x)[(c)[2]], (x)[(c)[1]], (x)[(c)[0]]

AVX2 INLINE __m256 f4_loads_step(__m256 sums, const f4 *x, const f4 *value, const char *columns,
                                 int form, int ragged)
{
    if (ragged || form == DENSE)
        return f4_avx2_step(sums, x, value, columns, form, ragged);
    int32_t column[LANES];
    all_columns(column, columns, form);
    __m256 found = _mm256_set_ps(FOUR(x, column + 4), FOUR(x, column));
    return _mm256_fmadd_ps(_mm256_loadu_ps((const float *)value), found, sums);
}
MULTIPLIER(f4_loads, AVX2, f4, float, __m256, _mm256_setzero_ps(), f4_loads_step, _mm256_add_ps,
           _mm256_storeu_ps)

AVX2 INLINE f8_pair f8_loads_step(f8_pair sums, const f8 *x, const f8 *value, const char *columns,
                                  int form, int ragged)
{
    if (ragged || form == DENSE)
        return f8_avx2_step(sums, x, value, columns, form, ragged);
    int32_t column[LANES];
    all_columns(column, columns, form);
    const double *entries = (const double *)value;
    __m256d low = _mm256_set_pd(FOUR(x, column)), high = _mm256_set_pd(FOUR(x, column + 4));
    sums.low = _mm256_fmadd_pd(_mm256_loadu_pd(entries), low, sums.low);
    sums.high = _mm256_fmadd_pd(_mm256_loadu_pd(entries + 4), high, sums.high);
    return sums;
}
MULTIPLIER(f8_loads, AVX2, f8, double, f8_pair, F8_NONE, f8_loads_step, f8_avx2_plus, F8_SPREAD)

/* By kind, units, and whether elements are loaded one by one, where more than AVX2 gains nothing. */
static MultiplySlices *const vectorized[F8 + 1][3][2] = {
    [F4] = {{0}, {f4_avx2, f4_loads}, {f4_avx2, f4_loads}},
    [F8] = {{0}, {f8_avx2, f8_loads}, {f8_avx512, f8_loads}},
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Which of the two is faster here, on some slices in the cache. Their sums are the same bits. */
static int loads_win(MultiplySlices *const *ways)
{
    enum { COUNT = 32, STEPS = 16, X = 1 << 12, RUNS = 7 };
    static const Py_ssize_t entries = COUNT * STEPS * LANES;
    double best[2] = {1e9, 1e9}, y[LANES];
    Slice slices[COUNT];
    int32_t numbers[COUNT * LANES] = {0};
    double *memory = calloc((size_t)(X + entries) + (AHEAD + entries / 4), sizeof *memory);
    if (memory == NULL)
        return 0;
    uint16_t *columns = (uint16_t *)(memory + X + entries);
    for (Py_ssize_t i = 0; i < entries; i++)
        columns[i] = (uint16_t)(i * 40503 % X); /* here and there */
    for (int i = 0; i < COUNT; i++)
        slices[i] = (Slice){.full = {STEPS}, .lanes = LANES, .form = NARROW, .straight = 1};
    Slices all = {COUNT, slices, numbers, (char *)columns, (char *)(memory + X)};
    for (int run = 0; run < 2 * RUNS; run++) {
        double began = seconds();
        ways[run % 2](&all, memory, memory, y);
        double taken = seconds() - began;
        best[run % 2] = taken < best[run % 2] ? taken : best[run % 2];
    }
    free(memory);
    return best[1] < best[0];
}

/* What the processor has and the system saves: 0, 1 with AVX2 and FMA, 2 with AVX-512, too. */
static int units_at_hand(void)
{
    enum { FMA = 1 << 12, SAVES = 1 << 27, AVX2_BIT = 1 << 5, AVX512F = 1 << 16 };
    const unsigned avx512vl = 1u << 31;
    unsigned a, b, c, d, saved, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & SAVES) || !(c & FMA))
        return 0;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if ((saved & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & AVX2_BIT))
        return 0;
    return (saved & 0xE0) == 0xE0 && (b & AVX512F) && (b & avx512vl) ? 2 : 1;
}
#endif

int vector_units(int most)
{
    int units = 0;
#ifdef VECTORS
    units = units_at_hand();
#endif
    return units < most ? units : most;
}

MultiplySlices *slices_multiplier(int kind, int units, int loads)
{
#ifdef VECTORS
    static int known[F8 + 1][3]; /* 1 with gathers, 2 without */
    if (units) {
        if (loads < 0 && !known[kind][units])
            known[kind][units] = 1 + loads_win(vectorized[kind][units]);
        return vectorized[kind][units][loads < 0 ? known[kind][units] - 1 : loads];
    }
#else
    (void)units, (void)loads;
#endif
    return kind == F4 ? f4_plain : f8_plain;
}

/* -- making them ---------------------------------------------------------------------------------- */

/* A row of a window: its number, and how many entries its two parts have. */
typedef struct { int32_t row, length[2]; } Entry;

/* Descending by the length of one part; rows of like lengths keep their order. */
static void sort_by(int part, const Entry *from, Entry *to, Py_ssize_t count)
{
    Py_ssize_t places[LONG + 1] = {0};
    for (Py_ssize_t i = 0; i < count; i++)
        places[LONG - 1 - from[i].length[part] + 1]++;
    for (int length = 0; length < LONG; length++)
        places[length + 1] += places[length];
    for (Py_ssize_t i = 0; i < count; i++)
        to[places[LONG - 1 - from[i].length[part]]++] = from[i];
}

/* Whether every entry of 8 rows of a length lies one column behind that of the row before. */
static int follows(const Csr *csr, const int32_t *numbers, int32_t length)
{
    for (int lane = 1; lane < LANES; lane++) {
        int64_t before = index_at(csr->starts, csr->wide, numbers[lane - 1]);
        int64_t here = index_at(csr->starts, csr->wide, numbers[lane]);
        for (int32_t i = 0; i < length; i++) {
            int64_t column = index_at(csr->columns, csr->wide, here + i);
            if (column != index_at(csr->columns, csr->wide, before + i) + 1 || column == csr->own)
                return 0;
        }
    }
    return 1;
}

/* The head of a slice of so many rows; the numbers of its rows are written beside it. */
static void add_slice(Slices *made, const Csr *csr, const Entry *entries, int lanes, int along)
{
    Slice slice = {.lanes = (uint8_t)lanes, .along = (uint8_t)along, .straight = 1};
    int narrow = 1, dense = lanes == LANES;
    int32_t *numbers = made->numbers + LANES * made->count;
    int64_t first[2] = {INT64_MAX, INT64_MAX}, last[2] = {-1, -1};
    slice.row = entries[0].row;
    for (int lane = 0; lane < lanes; lane++) {
        int32_t row = entries[lane].row;
        numbers[lane] = row;
        slice.straight &= row == slice.row + lane;
        int64_t to = index_at(csr->starts, csr->wide, row + 1);
        for (int64_t place = index_at(csr->starts, csr->wide, row); place < to; place++) {
            int64_t column = index_at(csr->columns, csr->wide, place);
            int part = column >= csr->own;
            column -= part ? csr->own : 0;
            first[part] = column < first[part] ? column : first[part];
            last[part] = column > last[part] ? column : last[part];
        }
    }
    for (int part = 0; part < 2; part++) {
        int32_t least = lanes == LANES ? INT32_MAX : 0, most = 0;
        for (int lane = 0; lane < lanes; lane++) {
            int32_t length = entries[lane].length[part];
            least = length < least ? length : least;
            most = length > most ? length : most;
        }
        slice.full[part] = along ? most / LANES : least;
        slice.ragged[part] = along ? most % LANES != 0 : most - least;
        narrow &= last[part] - first[part] < NOTHING;
        dense &= slice.ragged[part] == 0;
        slice.base[part] = last[part] < 0 ? 0 : (int32_t)first[part];
    }
    slice.form = dense && follows(csr, numbers, slice.full[0] + slice.full[1]) ? DENSE
                 : narrow ? NARROW : WIDE;
    for (int part = 0; part < 2; part++)
        slice.base[part] = slice.form == NARROW ? slice.base[part] : 0;
    made->slices[made->count++] = slice;
}

/* The entries of a slice, and marks where there are none. */
static void fill_slice(const Slice *slice, const int32_t *numbers, const Csr *csr, char **columns,
                       char **values)
{
    Py_ssize_t item = csr->item;
    Py_ssize_t own = (Py_ssize_t)LANES * (slice->full[0] + slice->ragged[0]);
    Py_ssize_t all = own + (Py_ssize_t)LANES * (slice->full[1] + slice->ragged[1]);
    Py_ssize_t bytes = all / LANES * widths[slice->form];
    memset(*columns, 0xFF, (size_t)bytes);
    memset(*values, 0, (size_t)(all * item));
    for (int lane = 0; lane < slice->lanes; lane++) {
        Py_ssize_t here[2] = {lane, own + lane}, stride = slice->along ? 1 : LANES;
        int32_t row = numbers[lane];
        int64_t to = index_at(csr->starts, csr->wide, row + 1);
        for (int64_t place = index_at(csr->starts, csr->wide, row); place < to; place++) {
            int64_t column = index_at(csr->columns, csr->wide, place);
            int part = column >= csr->own;
            int32_t number = (int32_t)(column - (part ? csr->own : 0)) - slice->base[part];
            Py_ssize_t at = here[part];
            here[part] += stride;
            if (slice->form == NARROW)
                ((uint16_t *)*columns)[at] = (uint16_t)number;
            else if (slice->form == WIDE)
                ((int32_t *)*columns)[at] = number;
            else if (lane == 0)
                ((int32_t *)*columns)[at / LANES] = number;
            if (item == 8)
                memcpy(*values + 8 * at, csr->values + 8 * place, 8);
            else
                memcpy(*values + 4 * at, csr->values + 4 * place, 4);
        }
    }
    *columns += bytes;
    *values += all * item;
}

/* Memory that is read from one end to the other, in large pages where the system has some. */
static char *allocated(Py_ssize_t bytes)
{
    enum { PAGE = 1 << 21 };
    if (bytes < 2 * PAGE)
        return malloc((size_t)bytes + 64);
    char *memory = aligned_alloc(PAGE, ((size_t)bytes + PAGE - 1) / PAGE * PAGE);
#ifdef MADV_HUGEPAGE
    if (memory != NULL)
        madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

int make_slices(Slices *made, const Csr *csr, const Runs *runs)
{
    Py_ssize_t rows = 0;
    for (Py_ssize_t run = 0; run < runs->count; run++)
        rows += runs->ends[2 * run + 1] - runs->ends[2 * run];
    memset(made, 0, sizeof *made);
    Entry *window = malloc(2 * WINDOW * sizeof *window), *sorted = window + WINDOW;
    made->slices = malloc((size_t)(rows + 1) * sizeof *made->slices);
    made->numbers = malloc((size_t)(rows + 1) * LANES * sizeof *made->numbers);
    if (window == NULL || made->slices == NULL || made->numbers == NULL)
        goto failed;
    Py_ssize_t count = 0, seen = 0;
    for (Py_ssize_t run = 0; run < runs->count; run++)
        for (Py_ssize_t row = runs->ends[2 * run]; row < runs->ends[2 * run + 1]; row++) {
            Entry entry = {.row = (int32_t)row, .length = {0, 0}};
            int64_t from = index_at(csr->starts, csr->wide, row);
            int64_t to = index_at(csr->starts, csr->wide, row + 1);
            for (int64_t place = from; place < to; place++)
                entry.length[index_at(csr->columns, csr->wide, place) >= csr->own]++;
            if (to - from >= LONG)
                add_slice(made, csr, &entry, 1, 1);
            else
                window[count++] = entry;
            if (++seen < rows && count < WINDOW)
                continue;
            sort_by(1, window, sorted, count);
            sort_by(0, sorted, window, count);
            for (Py_ssize_t i = 0; i < count; i += LANES)
                add_slice(made, csr, window + i, count - i < LANES ? (int)(count - i) : LANES, 0);
            count = 0;
        }
    /* there was room for slices of one row each */
    size_t slices = (size_t)made->count + 1;
    Slice *fewer = realloc(made->slices, slices * sizeof *fewer);
    made->slices = fewer != NULL ? fewer : made->slices;
    int32_t *numbers = realloc(made->numbers, slices * LANES * sizeof *numbers);
    made->numbers = numbers != NULL ? numbers : made->numbers;
    Py_ssize_t entries = 0, bytes = 0;
    for (Py_ssize_t i = 0; i < made->count; i++) {
        const Slice *slice = made->slices + i;
        Py_ssize_t steps = (Py_ssize_t)slice->full[0] + slice->ragged[0] + slice->full[1] +
                           slice->ragged[1];
        entries += LANES * steps;
        bytes += steps * widths[slice->form];
    }
    made->columns = allocated(bytes);
    made->values = allocated(entries * csr->item);
    if (made->columns == NULL || made->values == NULL)
        goto failed;
    char *columns = made->columns, *values = made->values;
    for (Py_ssize_t i = 0; i < made->count; i++)
        fill_slice(made->slices + i, made->numbers + LANES * i, csr, &columns, &values);
    free(window);
    return 0;
failed:
    free(window);
    free_slices(made);
    return -1;
}

void free_slices(Slices *slices)
{
    free(slices->slices);
    free(slices->numbers);
    free(slices->columns);
    free(slices->values);
    memset(slices, 0, sizeof *slices);
}
