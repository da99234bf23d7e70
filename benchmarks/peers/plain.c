/* The workloads as one would write them in C: plain loops, doubles, the gradient by hand. Compiled with
   gcc -O3 -march=native. Parameters lie neuron by neuron, weights then bias, as chainrule keeps them. */

#include <math.h>
#include <string.h>

#include "descent.h"

enum { MOST = 16 };

/* One layer of `out` neurons on `in` inputs. */
static inline void forward(const double *restrict p, const double *restrict x, double *restrict h, int in, int out)
{
    for (int j = 0; j < out; j++) {
        double total = p[j * (in + 1) + in];
        for (int k = 0; k < in; k++)
            total += p[j * (in + 1) + k] * x[k];
        h[j] = total;
    }
}

static inline void backward(const double *restrict p, double *restrict dp, const double *restrict x,
                            double *restrict dx, const double *restrict dh, int in, int out)
{
    for (int k = 0; k < in; k++)
        dx[k] = 0.0;
    for (int j = 0; j < out; j++) {
        for (int k = 0; k < in; k++) {
            dp[j * (in + 1) + k] += dh[j] * x[k];
            dx[k] += dh[j] * p[j * (in + 1) + k];
        }
        dp[j * (in + 1) + in] += dh[j];
    }
}

/* micrograd's demo: 2-16-16-1, relu, hinge loss and 1e-4 of the squares. Gradient into dp, returns the loss. */
double moons(const double *p, double *dp, const double *x, const double *y, long n)
{
    double loss = 0.0, squares = 0.0;
    for (int i = 0; i < 337; i++) {
        squares += p[i] * p[i];
        dp[i] = 2e-4 * p[i];
    }
    for (long i = 0; i < n; i++) {
        double a[MOST], b[MOST], c, da[MOST], db[MOST], dx[MOST];
        forward(p, x + 2 * i, a, 2, 16);
        for (int j = 0; j < 16; j++)
            a[j] = a[j] > 0 ? a[j] : 0;
        forward(p + 48, a, b, 16, 16);
        for (int j = 0; j < 16; j++)
            b[j] = b[j] > 0 ? b[j] : 0;
        forward(p + 320, b, &c, 16, 1);
        double margin = 1 - y[i] * c;
        if (margin <= 0)
            continue;
        loss += margin;
        double dc = -y[i] / n;
        backward(p + 320, dp + 320, b, db, &dc, 16, 1);
        for (int j = 0; j < 16; j++)
            db[j] = b[j] > 0 ? db[j] : 0;
        backward(p + 48, dp + 48, a, da, db, 16, 16);
        for (int j = 0; j < 16; j++)
            da[j] = a[j] > 0 ? da[j] : 0;
        backward(p, dp, x + 2 * i, dx, da, 2, 16);
    }
    return loss / n + 1e-4 * squares;
}

/* Four points: 3-4-4-1, tanh, sum of squares. */
double four_points(const double *p, double *dp, const double *x, const double *y, long n)
{
    double loss = 0.0;
    memset(dp, 0, 41 * sizeof(double));
    for (long i = 0; i < n; i++) {
        double a[MOST], b[MOST], c, da[MOST], db[MOST], dx[MOST];
        forward(p, x + 3 * i, a, 3, 4);
        for (int j = 0; j < 4; j++)
            a[j] = tanh(a[j]);
        forward(p + 16, a, b, 4, 4);
        for (int j = 0; j < 4; j++)
            b[j] = tanh(b[j]);
        forward(p + 36, b, &c, 4, 1);
        c = tanh(c);
        double error = c - y[i];
        loss += error * error;
        double dc = 2 * error * (1 - c * c);
        backward(p + 36, dp + 36, b, db, &dc, 4, 1);
        for (int j = 0; j < 4; j++)
            db[j] *= 1 - b[j] * b[j];
        backward(p + 16, dp + 16, a, da, db, 4, 4);
        for (int j = 0; j < 4; j++)
            da[j] *= 1 - a[j] * a[j];
        backward(p, dp, x + 3 * i, dx, da, 3, 4);
    }
    return loss;
}
