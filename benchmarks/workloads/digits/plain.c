/* 784-50-10, relu, softmax cross-entropy: plain loops, the gradient by hand. */

#include <math.h>
#include <string.h>

enum { PIXELS = 784, HIDDEN = 50, CLASSES = 10, SECOND = HIDDEN * (PIXELS + 1), ALL = SECOND + CLASSES * (HIDDEN + 1) };

static void forward(const double *restrict p, const double *restrict x, double *restrict h, int in, int out)
{
    for (int j = 0; j < out; j++) {
        double total = p[j * (in + 1) + in];
        for (int k = 0; k < in; k++)
            total += p[j * (in + 1) + k] * x[k];
        h[j] = total;
    }
}

double loss(const double *p, double *dp, const double *x, const double *y, long n)
{
    double sum = 0.0;
    memset(dp, 0, ALL * sizeof(double));
    for (long i = 0; i < n; i++, x += PIXELS, y += CLASSES) {
        double h[HIDDEN], z[CLASSES], dh[HIDDEN] = {0}, total = 0.0, most = -INFINITY;
        forward(p, x, h, PIXELS, HIDDEN);
        for (int j = 0; j < HIDDEN; j++)
            h[j] = h[j] > 0 ? h[j] : 0;
        forward(p + SECOND, h, z, HIDDEN, CLASSES);
        for (int c = 0; c < CLASSES; c++)
            most = z[c] > most ? z[c] : most;
        for (int c = 0; c < CLASSES; c++)
            total += exp(z[c] - most);
        for (int c = 0; c < CLASSES; c++) {
            double surprise = log(total) + most - z[c], slope = (exp(-surprise) - y[c]) / n;
            sum += y[c] * surprise;
            const double *row = p + SECOND + c * (HIDDEN + 1);
            double *drow = dp + SECOND + c * (HIDDEN + 1);
            for (int j = 0; j < HIDDEN; j++) {
                drow[j] += slope * h[j];
                dh[j] += slope * row[j];
            }
            drow[HIDDEN] += slope;
        }
        for (int j = 0; j < HIDDEN; j++) {
            double *drow = dp + j * (PIXELS + 1);
            if (h[j] <= 0)
                continue;
            for (int k = 0; k < PIXELS; k++)
                drow[k] += dh[j] * x[k];
            drow[PIXELS] += dh[j];
        }
    }
    return sum / n;
}
