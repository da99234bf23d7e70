/* What CasADi generates, as a loss. Given with -D: how much room it works in. */

#include "generated.c"

double loss(const double *p, double *dp, const double *x, const double *y, long n)
{
    static double room[DOUBLES];
    static casadi_int integers[INTEGERS];
    const double *in[ARGUMENTS] = {p, x, y};
    double value, *out[RESULTS] = {&value, dp};
    (void)n;
    whole(in, out, integers, room, 0);
    return value;
}
