/* micrograd's network 2-16-16-1 for the vectors of the processor: a lane an example, register tiles of 4 neurons by
   4 vectors, products kept in the first-level cache. GCC's vector extensions; 8 doubles with AVX-512, 4 with AVX2.
   Same interface as plain.c. */

#include <string.h>

#ifdef __AVX512F__
enum { LANES = 8 };
#elif defined __AVX__
enum { LANES = 4 };
#else
enum { LANES = 2 };
#endif

enum { WIDTH = 16, IN = 2, ROW = WIDTH + 1, TILE = 4, VECTORS = 16, BLOCK = VECTORS * LANES };

typedef double vec __attribute__((vector_size(LANES * sizeof(double))));
typedef long mask __attribute__((vector_size(LANES * sizeof(double))));

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

INLINE vec all(double a)
{
    return a - (vec){};
}

/* `a` in the lanes where `sign` is positive, else 0. */
INLINE vec where_positive(vec sign, vec a)
{
    return (vec)((mask)a & (sign > 0));
}

INLINE double sum(vec a)
{
    double total = 0;
    UNROLL for (int i = 0; i < LANES; i++) total += a[i];
    return total;
}

/* Sums over lanes, kept until all examples are done. */
typedef struct {
    vec first[WIDTH][IN + 1], second[WIDTH][ROW], third[ROW], loss;
} Sums;

/* What is kept of a block of examples. */
typedef struct {
    vec x[IN][VECTORS], y[VECTORS], a[WIDTH][VECTORS], b[WIDTH][VECTORS], score[VECTORS];
} Block;

/* TILE neurons on `count` vectors: out[j] = relu(bias + Σk w[j][k]·in[k]). */
INLINE void forward(const double *p, vec in[][VECTORS], int inputs, vec out[][VECTORS], int v, const int count)
{
    vec total[TILE][TILE];
    UNROLL for (int j = 0; j < TILE; j++)
        UNROLL for (int i = 0; i < count; i++) total[j][i] = all(p[j * (inputs + 1) + inputs]);
    for (int k = 0; k < inputs; k++)
        UNROLL for (int j = 0; j < TILE; j++)
            UNROLL for (int i = 0; i < count; i++) total[j][i] += p[j * (inputs + 1) + k] * in[k][v + i];
    UNROLL for (int j = 0; j < TILE; j++)
        UNROLL for (int i = 0; i < count; i++) out[j][v + i] = where_positive(total[j][i], total[j][i]);
}

/* The scores and the loss; `b` becomes its own adjoint. */
INLINE void last_layer(const double *p, Block *s, Sums *d, double share, int v, const int count)
{
    vec score[TILE], slope[TILE];
    UNROLL for (int i = 0; i < count; i++) score[i] = all(p[WIDTH]);
    UNROLL for (int j = 0; j < WIDTH; j++)
        UNROLL for (int i = 0; i < count; i++) score[i] += p[j] * s->b[j][v + i];
    UNROLL for (int i = 0; i < count; i++) {
        vec y = s->y[v + i];
        vec margin = y * y - y * score[i]; /* y is 1 or -1, and 0 in a lane without an example */
        d->loss += where_positive(margin, margin);
        slope[i] = where_positive(margin, -share * y);
        d->third[WIDTH] += slope[i];
    }
    for (int j = 0; j < WIDTH; j++) {
        vec total = d->third[j];
        UNROLL for (int i = 0; i < count; i++) {
            vec b = s->b[j][v + i];
            total += slope[i] * b;
            s->b[j][v + i] = where_positive(b, p[j] * slope[i]);
        }
        d->third[j] = total;
    }
}

/* Adjoints of TILE neurons of the first layer, from k on, straight into the gradient of their parameters. */
INLINE void first_layer(const double *p, Block *s, Sums *d, int k, int v, const int count)
{
    vec total[TILE][TILE] = {};
    for (int j = 0; j < WIDTH; j++)
        UNROLL for (int t = 0; t < TILE; t++)
            UNROLL for (int i = 0; i < count; i++) total[t][i] += p[j * ROW + k + t] * s->b[j][v + i];
    UNROLL for (int t = 0; t < TILE; t++) {
        vec *sums = d->first[k + t];
        UNROLL for (int i = 0; i < count; i++) {
            vec slope = where_positive(s->a[k + t][v + i], total[t][i]);
            sums[0] += slope * s->x[0][v + i];
            sums[1] += slope * s->x[1][v + i];
            sums[2] += slope;
        }
    }
}

/* The gradient of a tile of the second layer's weights: Σ over examples of adjoint times input. */
INLINE void second_layer(Block *s, Sums *d, int j, int k, int vectors)
{
    vec total[TILE][TILE];
    UNROLL for (int t = 0; t < TILE; t++)
        UNROLL for (int u = 0; u < TILE; u++) total[t][u] = d->second[j + t][k + u];
    for (int v = 0; v < vectors; v++)
        UNROLL for (int t = 0; t < TILE; t++)
            UNROLL for (int u = 0; u < TILE; u++) total[t][u] += s->b[j + t][v] * s->a[k + u][v];
    UNROLL for (int t = 0; t < TILE; t++)
        UNROLL for (int u = 0; u < TILE; u++) d->second[j + t][k + u] = total[t][u];
}

INLINE void through(const double *p, Block *s, Sums *d, double share, int v, const int count)
{
    for (int j = 0; j < WIDTH; j += TILE)
        forward(p + j * (IN + 1), s->x, IN, s->a + j, v, count);
    for (int j = 0; j < WIDTH; j += TILE)
        forward(p + 48 + j * ROW, s->a, WIDTH, s->b + j, v, count);
    last_layer(p + 320, s, d, share, v, count);
    for (int k = 0; k < WIDTH; k += TILE)
        first_layer(p + 48, s, d, k, v, count);
}

static void block(const double *p, Block *s, Sums *d, double share, int vectors)
{
    int v = 0;
    for (; v + TILE <= vectors; v += TILE)
        through(p, s, d, share, v, TILE);
    for (; v < vectors; v++)
        through(p, s, d, share, v, 1);
    for (int j = 0; j < WIDTH; j += TILE)
        for (int k = 0; k < WIDTH; k += TILE)
            second_layer(s, d, j, k, vectors);
    for (int j = 0; j < WIDTH; j++)
        for (int i = 0; i < vectors; i++)
            d->second[j][WIDTH] += s->b[j][i];
}

/* Loads examples with their two coordinates apart; lanes without an example are 0. */
static int load(Block *s, const double *x, const double *y, long n)
{
    double *x0 = (double *)s->x[0], *x1 = (double *)s->x[1], *label = (double *)s->y;
    int vectors = (n + LANES - 1) / LANES;
    for (long i = 0; i < n; i++)
        x0[i] = x[2 * i], x1[i] = x[2 * i + 1], label[i] = y[i];
    for (long i = n; i < vectors * LANES; i++)
        x0[i] = x1[i] = label[i] = 0;
    return vectors;
}

double loss(const double *p, double *dp, const double *x, const double *y, long n)
{
    Block s;
    Sums d;
    memset(&d, 0, sizeof d);
    for (long i = 0; i < n; i += BLOCK) {
        int vectors = load(&s, x + IN * i, y + i, n - i < BLOCK ? n - i : BLOCK);
        block(p, &s, &d, 1.0 / n, vectors);
    }
    const vec *sums = d.first[0];
    double squares = 0;
    for (int i = 0; i < 337; i++) {
        squares += p[i] * p[i];
        dp[i] = 2e-4 * p[i] + sum(sums[i]);
    }
    return sum(d.loss) / n + 1e-4 * squares;
}
