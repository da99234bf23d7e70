/* 3-4-4-1, tanh everywhere, sum of squares. Plain loops, the gradient by hand. */

#include <math.h>
#include <string.h>

enum { MOST = 4 };

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

double loss(const double *p, double *dp, const double *x, const double *y, long n)
{
    double sum = 0.0;
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
        sum += error * error;
        double dc = 2 * error * (1 - c * c);
        backward(p + 36, dp + 36, b, db, &dc, 4, 1);
        for (int j = 0; j < 4; j++)
            db[j] *= 1 - b[j] * b[j];
        backward(p + 16, dp + 16, a, da, db, 4, 4);
        for (int j = 0; j < 4; j++)
            da[j] *= 1 - a[j] * a[j];
        backward(p, dp, x + 3 * i, dx, da, 3, 4);
    }
    return sum;
}
