/* An Asian call by Monte Carlo: plain loops, the derivatives of each path along with its price. */

#include <math.h>

enum { DATES = 12 };

double loss(const double *market, double *greeks, const double *shocks, const double *unused, long n)
{
    double spot = market[0], volatility = market[1], rate = market[2], years = market[3];
    double step = years / DATES, root = sqrt(step), discount = exp(-rate * years);
    double drift = (rate - volatility * volatility / 2) * step;
    double worth = 0.0, sum = 0.0, by_drift = 0.0, by_spread = 0.0;
    (void)unused;
    for (long i = 0; i < n; i++, shocks += DATES) {
        double price = spot, shock = 0.0, total = 0.0, slope = 0.0, spread = 0.0;
        for (int k = 0; k < DATES; k++) {
            price *= exp(drift + volatility * root * shocks[k]);
            shock += shocks[k];
            total += price;
            slope += (k + 1) * price;
            spread += shock * price;
        }
        if (total / DATES <= 105.0)
            continue;
        worth += total / DATES - 105.0;
        sum += total / DATES;
        by_drift += slope / DATES;
        by_spread += spread / DATES;
    }
    worth *= discount / n, sum *= discount / n, by_drift *= discount / n, by_spread *= discount / n;
    greeks[0] = sum / spot;
    greeks[1] = by_spread * root - by_drift * volatility * step;
    greeks[2] = by_drift * step - years * worth;
    greeks[3] = by_drift * drift / years + by_spread * volatility * root / (2 * years) - rate * worth;
    return worth;
}
