/* What an iteration of cg does with its vectors, as steps of a script: each reads and writes them once.

   Complex vectors are twice as many real numbers but for a diagonal: only real parts of scalar
   products are needed. Single precision is summed in double. */

#include "product.h"
#include <math.h>

/* The numbers of an iteration; sparse/solvers/iteration.py has the same. */
enum { PQ, ALPHA, RR, RZ, GOOD };

enum { SUMS = 8 };

static inline double added(const double *sums)
{
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* T is the type of the vectors. */
#define WORKS(T, letter) \
    /* at: x, y, and where (x, y) goes. */ \
    static void dot_##letter(void *Py_UNUSED(handle), Py_ssize_t count, char *const *at) \
    { \
        const T *x = (const T *)at[0], *y = (const T *)at[1]; \
        double sums[SUMS] = {0}; \
        Py_ssize_t i = 0; \
        for (; i + SUMS <= count; i += SUMS) \
            for (int j = 0; j < SUMS; j++) \
                sums[j] += (double)x[i + j] * (double)y[i + j]; \
        for (; i < count; i++) \
            sums[0] += (double)x[i] * (double)y[i]; \
        *(double *)at[2] = added(sums); \
    } \
    \
    /* alpha = (r, z) / (p, q), r -= alpha q. at: numbers, (p, q), r, q, and where (r, r) goes. */ \
    static void lower_##letter(void *Py_UNUSED(handle), Py_ssize_t count, char *const *at) \
    { \
        double *numbers = (double *)at[0], pq = *(const double *)at[1]; \
        T *restrict r = (T *)at[2]; \
        const T *restrict q = (const T *)at[3]; \
        int good = isfinite(pq) && pq > 0; \
        numbers[PQ] = pq; \
        numbers[GOOD] = good; \
        numbers[ALPHA] = good ? numbers[RZ] / pq : 0; \
        T alpha = (T)numbers[ALPHA]; \
        double sums[SUMS] = {0}; \
        Py_ssize_t i = good ? 0 : count; \
        for (; i + SUMS <= count; i += SUMS) \
            for (int j = 0; j < SUMS; j++) { \
                r[i + j] -= alpha * q[i + j]; \
                sums[j] += (double)r[i + j] * (double)r[i + j]; \
            } \
        for (; i < count; i++) { \
            r[i] -= alpha * q[i]; \
            sums[0] += (double)r[i] * (double)r[i]; \
        } \
        *(double *)at[4] = added(sums); \
    } \
    \
    /* x += alpha p, p = z + beta p. at: numbers, (r, r), (r, z), x, p, z. */ \
    static void advance_##letter(void *Py_UNUSED(handle), Py_ssize_t count, char *const *at) \
    { \
        double *numbers = (double *)at[0], before = numbers[RZ]; \
        T *restrict x = (T *)at[3], *restrict p = (T *)at[4]; \
        const T *restrict z = (const T *)at[5]; \
        if (!numbers[GOOD]) \
            return; \
        numbers[RR] = *(const double *)at[1]; \
        numbers[RZ] = *(const double *)at[2]; \
        T alpha = (T)numbers[ALPHA], beta = (T)(numbers[RZ] / before); \
        for (Py_ssize_t i = 0; i < count; i++) { \
            x[i] += alpha * p[i]; \
            p[i] = z[i] + beta * p[i]; \
        } \
    } \
    \
    /* z = d r. at: d, r, z, and where (r, z) goes. */ \
    static void diagonal_##letter(void *Py_UNUSED(handle), Py_ssize_t count, char *const *at) \
    { \
        const T *restrict d = (const T *)at[0], *restrict r = (const T *)at[1]; \
        T *restrict z = (T *)at[2]; \
        double sums[SUMS] = {0}; \
        Py_ssize_t i = 0; \
        for (; i + SUMS <= count; i += SUMS) \
            for (int j = 0; j < SUMS; j++) { \
                z[i + j] = d[i + j] * r[i + j]; \
                sums[j] += (double)r[i + j] * (double)z[i + j]; \
            } \
        for (; i < count; i++) { \
            z[i] = d[i] * r[i]; \
            sums[0] += (double)r[i] * (double)z[i]; \
        } \
        *(double *)at[3] = added(sums); \
    } \
    \
    /* The same with complex entries; count is twice their number. */ \
    static void diagonal_complex_##letter(void *Py_UNUSED(handle), Py_ssize_t count, \
                                          char *const *at) \
    { \
        const T *restrict d = (const T *)at[0], *restrict r = (const T *)at[1]; \
        T *restrict z = (T *)at[2]; \
        double sum = 0; \
        for (Py_ssize_t i = 0; i < count; i += 2) { \
            z[i] = d[i] * r[i] - d[i + 1] * r[i + 1]; \
            z[i + 1] = d[i] * r[i + 1] + d[i + 1] * r[i]; \
            sum += (double)r[i] * (double)z[i] + (double)r[i + 1] * (double)z[i + 1]; \
        } \
        *(double *)at[3] = sum; \
    } \
    \
    /* The same for blocks of vectors, number beside number: of these a row has as many as the \
       handle says, and factors and sums are one for each. at: x, y, and where (x, y) goes. */ \
    static void dots_##letter(void *width, Py_ssize_t count, char *const *at) \
    { \
        const Py_ssize_t k = (Py_ssize_t)width; \
        const T *x = (const T *)at[0], *y = (const T *)at[1]; \
        double *restrict sums = (double *)at[2]; \
        for (Py_ssize_t j = 0; j < k; j++) \
            sums[j] = 0; \
        for (Py_ssize_t i = 0; i < count; i += k) \
            for (Py_ssize_t j = 0; j < k; j++) \
                sums[j] += (double)x[i + j] * (double)y[i + j]; \
    } \
    \
    /* r -= alpha q. at: alpha, q, r, and where (r, r) goes. */ \
    static void lowers_##letter(void *width, Py_ssize_t count, char *const *at) \
    { \
        const Py_ssize_t k = (Py_ssize_t)width; \
        const double *restrict alpha = (const double *)at[0]; \
        const T *restrict q = (const T *)at[1]; \
        T *restrict r = (T *)at[2]; \
        double *restrict sums = (double *)at[3]; \
        for (Py_ssize_t j = 0; j < k; j++) \
            sums[j] = 0; \
        for (Py_ssize_t i = 0; i < count; i += k) \
            for (Py_ssize_t j = 0; j < k; j++) { \
                r[i + j] -= (T)alpha[j] * q[i + j]; \
                sums[j] += (double)r[i + j] * (double)r[i + j]; \
            } \
    } \
    \
    /* x += alpha p, p = z + beta p. at: alpha, beta, x, p, z. */ \
    static void advances_##letter(void *width, Py_ssize_t count, char *const *at) \
    { \
        const Py_ssize_t k = (Py_ssize_t)width; \
        const double *restrict alpha = (const double *)at[0]; \
        const double *restrict beta = (const double *)at[1]; \
        T *restrict x = (T *)at[2], *restrict p = (T *)at[3]; \
        const T *restrict z = (const T *)at[4]; \
        for (Py_ssize_t i = 0; i < count; i += k) \
            for (Py_ssize_t j = 0; j < k; j++) { \
                x[i + j] += (T)alpha[j] * p[i + j]; \
                p[i + j] = z[i + j] + (T)beta[j] * p[i + j]; \
            } \
    }

WORKS(float, f)
WORKS(double, d)

const Named vector_works[] = {
    {"dot f", dot_f}, {"dot d", dot_d}, {"lower f", lower_f}, {"lower d", lower_d},
    {"advance f", advance_f}, {"advance d", advance_d},
    {"diagonal f", diagonal_f}, {"diagonal d", diagonal_d},
    {"diagonal F", diagonal_complex_f}, {"diagonal D", diagonal_complex_d},
    {"dots f", dots_f}, {"dots d", dots_d}, {"lowers f", lowers_f}, {"lowers d", lowers_d},
    {"advances f", advances_f}, {"advances d", advances_d}, {NULL, NULL},
};
