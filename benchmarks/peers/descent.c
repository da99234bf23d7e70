/* Gradient descent on any of the losses in C. */

double loss(const double *p, double *dp, const double *x, const double *y, long n);

/* So many steps at a constant rate; the last loss. */
double train(double *p, double *dp, long parameters, const double *x, const double *y, long n, double rate, long steps)
{
    double value = 0.0;
    for (long s = 0; s < steps; s++) {
        value = loss(p, dp, x, y, n);
        for (long i = 0; i < parameters; i++)
            p[i] -= rate * dp[i];
    }
    return value;
}
