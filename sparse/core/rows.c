/* Products of rows as they are, with several sums in a row: no copy of the entries. */

#include "product.h"

/* One for each type of entries T and of indices I, by rows.h; their names end with both. */
typedef int32_t i4;
typedef int64_t i8;
#define JOINED(name, T, I) name##_##T##_##I
#define NAMED(name, T, I) JOINED(name, T, I)
#define NAME(name) NAMED(name, T, I)

/* Real numbers. */
#define ZERO 0
#define ADDED(sum, a, b) ((sum) + (a) * (b))
#define SUM(a, b) ((a) + (b))
#define T f4
#define I i4
#include "rows.h"
#define I i8
#include "rows.h"
#undef T
#define T f8
#define I i4
#include "rows.h"
#define I i8
#include "rows.h"
#undef T
#undef ZERO
#undef ADDED
#undef SUM

/* Complex ones; infinities are not looked after, as in NumPy's products. */
#define ZERO (T){0, 0}
#define ADDED(sum, a, b) \
    (T){(sum).re + (a).re * (b).re - (a).im * (b).im, (sum).im + (a).re * (b).im + (a).im * (b).re}
#define SUM(a, b) (T){(a).re + (b).re, (a).im + (b).im}
#define T c8
#define I i4
#include "rows.h"
#define I i8
#include "rows.h"
#undef T
#define T c16
#define I i4
#include "rows.h"
#define I i8
#include "rows.h"

void multiply_rows(const Csr *csr, const Runs *runs, int boundary, Py_ssize_t k, const char *own,
                   const char *ghosts, char *y)
{
    typedef void Product(const Csr *, const Runs *, int, Py_ssize_t, const void *, const void *,
                         void *);
    static Product *const products[KINDS][2] = {
        {product_f4_i4, product_f4_i8},
        {product_f8_i4, product_f8_i8},
        {product_c8_i4, product_c8_i8},
        {product_c16_i4, product_c16_i8},
    };
    products[csr->kind][csr->wide](csr, runs, boundary, k, own, ghosts, y);
}
