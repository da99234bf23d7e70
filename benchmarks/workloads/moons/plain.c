/* micrograd's demo: 2-16-16-1, relu, hinge loss and 1e-4 of the squares. Plain loops, the gradient by hand. */

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

double loss(const double *p, double *dp, const double *x, const double *y, long n)
{
    double sum = 0.0, squares = 0.0;
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
        sum += margin;
        double dc = -y[i] / n;
        backward(p + 320, dp + 320, b, db, &dc, 16, 1);
        for (int j = 0; j < 16; j++)
            db[j] = b[j] > 0 ? db[j] : 0;
        backward(p + 48, dp + 48, a, da, db, 16, 16);
        for (int j = 0; j < 16; j++)
            da[j] = a[j] > 0 ? da[j] : 0;
        backward(p, dp, x + 2 * i, dx, da, 2, 16);
    }
    return sum / n + 1e-4 * squares;
}
