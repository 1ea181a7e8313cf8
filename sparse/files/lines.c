/* Lines of numbers, as a Matrix Market file has them, become arrays: checked and read in one pass.

   A number is the double next to it: D. Lemire, Number parsing at a gigabyte per second, Software:
   Practice and Experience 51 (2021), 1700-1727. Where 128 bits cannot decide, Python does. */

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* 5^q for these q: the first 128 bits, and one more unit below where the power is not exact. */
enum { LEAST = -300, MOST = 280 };
static uint64_t powers[MOST - LEAST + 1][2];

static const double exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                               1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                               1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

typedef struct {
    const char *at, *end; /* of the text, which ends with a newline */
    PyThreadState *released;
} Cursor;

static inline int is_digit(char c) { return (unsigned char)(c - '0') < 10; }

static inline int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static inline void skip_blanks(Cursor *cursor)
{
    while (is_blank(*cursor->at))
        cursor->at++;
}

static inline int ends_word(char c) { return c == '\n' || is_blank(c); }

/* Digits as a number; 0 where there is none, or where there are more than 19. */
static inline int read_digits(Cursor *cursor, uint64_t *number)
{
    const char *at = cursor->at;
    uint64_t found = 0;
    while (is_digit(*at))
        found = 10 * found + (uint64_t)(*at++ - '0');
    ptrdiff_t length = at - cursor->at;
    cursor->at = at;
    *number = found;
    return length > 0 && length <= 19;
}

/* A number from 1 to limit, less one. */
static inline int read_index(Cursor *cursor, uint64_t limit, uint64_t *index)
{
    if (*cursor->at == '+')
        cursor->at++;
    if (!read_digits(cursor, index) || *index - 1 >= limit)
        return 0;
    *index -= 1;
    return 1;
}

static inline int read_signed(Cursor *cursor, int64_t *value)
{
    int negative = *cursor->at == '-';
    uint64_t number;
    cursor->at += negative || *cursor->at == '+';
    if (!read_digits(cursor, &number) || number > INT64_MAX)
        return 0;
    *value = negative ? -(int64_t)number : (int64_t)number;
    return 1;
}

/* number * 10^q, or 0 where this cannot tell. */
static int scaled(uint64_t number, int64_t q, double *value)
{
    if (number == 0) {
        *value = 0.0;
        return 1;
    }
    if (number <= (uint64_t)1 << 53 && q >= -22 && q <= 22) {
        *value = q < 0 ? (double)number / exact[-q] : (double)number * exact[q];
        return 1;
    }
    if (q < LEAST || q > MOST)
        return 0;
    int zeros = __builtin_clzll(number);
    const uint64_t *power = powers[q - LEAST];
    unsigned __int128 product = (unsigned __int128)(number << zeros) * power[0];
    uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
    if ((high & 0x1FF) == 0x1FF) {
        uint64_t more = (uint64_t)((unsigned __int128)(number << zeros) * power[1] >> 64);
        low += more;
        high += low < more;
        if (low == UINT64_MAX)
            return 0;
    }
    int upper = (int)(high >> 63);
    uint64_t bits = high >> (upper + 9);
    if (low <= 1 && (bits & 3) == 1 && bits << (upper + 9) == high)
        return 0; /* as near to the double above as to that below */
    int64_t exponent = ((217706 * q) >> 16) + 63 + 1023 + upper - zeros;
    bits = (bits + (bits & 1)) >> 1;
    if (bits >> 53) {
        bits >>= 1;
        exponent++;
    }
    if (exponent <= 0 || exponent >= 2047)
        return 0;
    bits = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)exponent << 52;
    memcpy(value, &bits, sizeof *value);
    return 1;
}

static int by_python(Cursor *cursor, const char *word, double *value)
{
    PyEval_RestoreThread(cursor->released);
    char *end = NULL;
    *value = PyOS_string_to_double(word, &end, NULL);
    int good = !(*value == -1.0 && PyErr_Occurred()) && end == cursor->at;
    PyErr_Clear();
    cursor->released = PyEval_SaveThread();
    return good;
}

/* Eight digits at once where there are so many; the lowest address is the lowest byte. */
static inline int read_eight(const char *at, const char *end, uint64_t *number)
{
    uint64_t word;
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || end - at < 8)
        return 0;
    memcpy(&word, at, 8);
    if (((word & 0xF0F0F0F0F0F0F0F0) | ((word + 0x0606060606060606) & 0xF0F0F0F0F0F0F0F0) >> 4) !=
        0x3333333333333333)
        return 0;
    word -= 0x3030303030303030;
    word = word * 10 + (word >> 8);
    word = ((word & 0x000000FF000000FF) * 0x000F424000000064 +
            (word >> 16 & 0x000000FF000000FF) * 0x0000271000000001) >> 32;
    *number = *number * 100000000 + word;
    return 1;
}

static int read_real(Cursor *cursor, double *value)
{
    const char *word = cursor->at, *at = word;
    int negative = *at == '-';
    at += negative || *at == '+';
    const char *first = at;
    uint64_t number = 0;
    while (is_digit(*at))
        number = 10 * number + (uint64_t)(*at++ - '0');
    ptrdiff_t digits = at - first;
    int64_t q = 0;
    if (*at == '.') {
        const char *point = ++at;
        while (read_eight(at, cursor->end, &number))
            at += 8;
        while (is_digit(*at))
            number = 10 * number + (uint64_t)(*at++ - '0');
        q = point - at;
        digits += at - point;
    }
    if (digits == 0)
        return 0; /* a name, such as nan, is left to Python */
    if (*at == 'e' || *at == 'E') {
        int down = *++at == '-';
        at += down || *at == '+';
        if (!is_digit(*at))
            return 0;
        int64_t power = 0;
        for (; is_digit(*at); at++)
            power = power < 100000 ? 10 * power + (*at - '0') : power;
        q += down ? -power : power;
    }
    cursor->at = at;
    if (digits > 19) { /* zeros in front do not count */
        for (; *first == '0' || *first == '.'; first++)
            digits -= *first == '0';
        if (digits > 19)
            return by_python(cursor, word, value);
    }
    if (!scaled(number, q, value))
        return by_python(cursor, word, value);
    *value = negative ? -*value : *value;
    return 1;
}

typedef struct {
    uint64_t limits[2]; /* rows and columns; no places where there are none */
    int places, wide;   /* whether there are indices, of 64 bits or of 32 */
    char kind;          /* of the values: as NumPy's; n for none */
    void *rows, *cols, *values;
} Layout;

static inline void store(void *to, int wide, Py_ssize_t entry, uint64_t index)
{
    if (wide)
        ((int64_t *)to)[entry] = (int64_t)index;
    else
        ((int32_t *)to)[entry] = (int32_t)index;
}

static inline int read_value(Cursor *cursor, const Layout *layout, Py_ssize_t entry)
{
    double *reals = layout->values;
    switch (layout->kind) {
    case 'f':
        return read_real(cursor, reals + entry);
    case 'c':
        if (!read_real(cursor, reals + 2 * entry) || !is_blank(*cursor->at))
            return 0;
        skip_blanks(cursor);
        return read_real(cursor, reals + 2 * entry + 1);
    case 'i':
        return read_signed(cursor, (int64_t *)layout->values + entry);
    case 'u':
        cursor->at += *cursor->at == '+';
        return read_digits(cursor, (uint64_t *)layout->values + entry);
    default:
        reals[entry] = 1.0;
        return 1;
    }
}

static inline int read_entry(Cursor *cursor, const Layout *layout, Py_ssize_t entry)
{
    if (layout->places) {
        uint64_t row, col;
        if (!read_index(cursor, layout->limits[0], &row) || !is_blank(*cursor->at))
            return 0;
        skip_blanks(cursor);
        if (!read_index(cursor, layout->limits[1], &col) || !ends_word(*cursor->at))
            return 0;
        skip_blanks(cursor);
        store(layout->rows, layout->wide, entry, row);
        store(layout->cols, layout->wide, entry, col);
    }
    if (!read_value(cursor, layout, entry) || !ends_word(*cursor->at))
        return 0;
    skip_blanks(cursor);
    return *cursor->at == '\n';
}

/* parse(text, start, shape, kind, rows, cols, values) -> (entries, where it ended)

   Reads lines from `start` on until the text or the room ends, or at the beginning of a line that
   it cannot read. `rows` and `cols` are None in an array file; blank lines are skipped. */
static PyObject *parse(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *arrays[3];
    Py_buffer text;
    Py_ssize_t start;
    Layout layout = {0};
    int kind;
    if (!PyArg_ParseTuple(args, "y*n(KK)COOO", &text, &start, &layout.limits[0], &layout.limits[1],
                          &kind, &arrays[0], &arrays[1], &arrays[2]))
        return NULL;
    const char *begin = text.buf, *line = begin;
    Py_ssize_t length = text.len, room = PY_SSIZE_T_MAX, entries = 0;
    Py_buffer views[3];
    int taken = 0, good = 0;
    if (start < 0 || (length && begin[length - 1] != '\n')) {
        PyErr_SetString(PyExc_ValueError, "whole lines expected");
        goto done;
    }
    layout.kind = (char)kind;
    layout.places = arrays[0] != Py_None;
    for (int i = layout.places ? 0 : 2; i < 3; i++) {
        if (PyObject_GetBuffer(arrays[i], &views[i], PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0)
            goto done;
        taken |= 1 << i;
        Py_ssize_t count = views[i].len / views[i].itemsize;
        room = count < room ? count : room;
    }
    layout.wide = layout.places && views[0].itemsize == 8;
    if ((layout.places && views[1].itemsize != views[0].itemsize) ||
        views[2].itemsize != (kind == 'c' ? 16 : 8)) {
        PyErr_SetString(PyExc_ValueError, "arrays of other items expected");
        goto done;
    }
    layout.rows = views[0].buf;
    layout.cols = views[1].buf;
    layout.values = views[2].buf;
    Cursor cursor = {begin + start, begin + length, PyEval_SaveThread()};
    line = cursor.at;
    while (line < cursor.end) {
        skip_blanks(&cursor);
        if (*cursor.at != '\n') {
            if (entries == room || !read_entry(&cursor, &layout, entries))
                break;
            entries++;
        }
        line = ++cursor.at;
    }
    PyEval_RestoreThread(cursor.released);
    good = 1;
done:
    for (int i = 0; i < 3; i++)
        if (taken & 1 << i)
            PyBuffer_Release(&views[i]);
    PyBuffer_Release(&text);
    return good ? Py_BuildValue("nn", entries, (Py_ssize_t)(line - begin)) : NULL;
}

/* set_powers(bytes): the table of powers. */
static PyObject *set_powers(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *bytes;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "y#", &bytes, &length))
        return NULL;
    if (length != sizeof powers) {
        PyErr_SetString(PyExc_ValueError, "a table of another length expected");
        return NULL;
    }
    memcpy(powers, bytes, sizeof powers);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"parse", parse, METH_VARARGS, NULL},
    {"set_powers", set_powers, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int add_constants(PyObject *module)
{
    return PyModule_AddIntConstant(module, "LEAST", LEAST) < 0 ||
                   PyModule_AddIntConstant(module, "MOST", MOST) < 0
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)add_constants},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* nothing here is shared but what never changes */
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "onesided.sparse.files._lines", .m_size = 0,
    .m_methods = functions, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__lines(void) { return PyModuleDef_Init(&definition); }
