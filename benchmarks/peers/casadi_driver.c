/* Sums what CasADi generates over the points. Given with -D: the NAME of the loss, its PARAMETERS, the INPUTS of a point,
   the number of points that one call of `some` is for (AT_ONCE), and the doubles that it works in (ROOM). */

#include "generated.c"

#include "descent.h"

double NAME(const double *p, double *dp, const double *x, const double *y, long n)
{
    double room[ROOM], part[PARAMETERS], value, loss;
    casadi_int none[1];
    const double *in[3] = {p};
    double *out[2] = {&loss, dp};
    rest(in, out, none, room, 0);
    out[0] = &value, out[1] = part;
    for (long i = 0; i < n; i += AT_ONCE) {
        in[1] = x + INPUTS * i, in[2] = y + i;
        some(in, out, none, room, 0);
        loss += value;
        for (long k = 0; k < PARAMETERS; k++)
            dp[k] += part[k];
    }
    return loss;
}
