/* microgpt in C by hand: doubles, one name a step, the gradient and Adam in loops. Compiled with
   gcc -O3 -march=native -fopenmp-simd. Matrices lie row by row, in the order of `Weights`. */

#include <math.h>
#include <string.h>

enum { TOKENS = 27, BLOCK = 16, WIDTH = 16, HEADS = 4, HEAD = 4, WIDE = 64 };

typedef double Square[WIDTH][WIDTH];

typedef struct {
    double token[TOKENS][WIDTH], position[BLOCK][WIDTH];
    Square query, key, value, mix;
    double widen[WIDE][WIDTH], narrow[WIDTH][WIDE], predict[TOKENS][WIDTH];
} Weights;

enum { COUNT = sizeof(Weights) / sizeof(double) };

/* y = W x */
static inline void product(const double *restrict w, const double *restrict x, double *restrict y, int rows, int columns)
{
    for (int j = 0; j < rows; j++) {
        double total = 0.0;
#pragma omp simd reduction(+ : total)
        for (int k = 0; k < columns; k++)
            total += w[j * columns + k] * x[k];
        y[j] = total;
    }
}

/* dW += dy xᵀ, dx += Wᵀ dy */
static inline void product_back(const double *restrict w, double *restrict dw, const double *restrict x,
                                double *restrict dx, const double *restrict dy, int rows, int columns)
{
    for (int j = 0; j < rows; j++)
#pragma omp simd
        for (int k = 0; k < columns; k++) {
            dw[j * columns + k] += dy[j] * x[k];
            dx[k] += dy[j] * w[j * columns + k];
        }
}

static inline double norm(const double *restrict x, double *restrict y)
{
    double squares = 0.0;
#pragma omp simd reduction(+ : squares)
    for (int k = 0; k < WIDTH; k++)
        squares += x[k] * x[k];
    double scale = 1.0 / sqrt(squares / WIDTH + 1e-5);
    for (int k = 0; k < WIDTH; k++)
        y[k] = x[k] * scale;
    return scale;
}

/* dx += scale dy - x scale³ mean(x dy) */
static inline void norm_back(const double *restrict x, double scale, const double *restrict dy, double *restrict dx)
{
    double total = 0.0;
#pragma omp simd reduction(+ : total)
    for (int k = 0; k < WIDTH; k++)
        total += x[k] * dy[k];
    double share = total / WIDTH * scale * scale * scale;
    for (int k = 0; k < WIDTH; k++)
        dx[k] += scale * dy[k] - share * x[k];
}

static void softmax(double *restrict z, int n)
{
    double most = z[0], total = 0.0;
    for (int k = 1; k < n; k++)
        most = z[k] > most ? z[k] : most;
    for (int k = 0; k < n; k++)
        total += z[k] = exp(z[k] - most);
    for (int k = 0; k < n; k++)
        z[k] /= total;
}

/* The mean surprise at n tokens, each followed by the next of `tokens`; its gradient goes to d. */
double loss(const Weights *restrict w, Weights *restrict d, const int *tokens, int n)
{
    double x0[BLOCK][WIDTH], x1[BLOCK][WIDTH], x2[BLOCK][WIDTH], x3[BLOCK][WIDTH], x4[BLOCK][WIDTH], x5[BLOCK][WIDTH];
    double q[BLOCK][WIDTH], k[BLOCK][WIDTH], v[BLOCK][WIDTH], shares[BLOCK][HEADS][BLOCK], heard[BLOCK][WIDTH];
    double hidden[BLOCK][WIDE], chances[BLOCK][TOKENS], s1[BLOCK], s2[BLOCK], s4[BLOCK], result = 0.0;
    for (int t = 0; t < n; t++) {
        for (int i = 0; i < WIDTH; i++)
            x0[t][i] = w->token[tokens[t]][i] + w->position[t][i];
        s1[t] = norm(x0[t], x1[t]);
        s2[t] = norm(x1[t], x2[t]);
        product(w->query[0], x2[t], q[t], WIDTH, WIDTH);
        product(w->key[0], x2[t], k[t], WIDTH, WIDTH);
        product(w->value[0], x2[t], v[t], WIDTH, WIDTH);
        for (int h = 0; h < HEADS; h++) {
            for (int u = 0; u <= t; u++) {
                double score = 0.0;
                for (int i = 0; i < HEAD; i++)
                    score += q[t][HEAD * h + i] * k[u][HEAD * h + i];
                shares[t][h][u] = score / 2.0;
            }
            softmax(shares[t][h], t + 1);
            for (int i = 0; i < HEAD; i++)
                heard[t][HEAD * h + i] = 0.0;
            for (int u = 0; u <= t; u++)
                for (int i = 0; i < HEAD; i++)
                    heard[t][HEAD * h + i] += shares[t][h][u] * v[u][HEAD * h + i];
        }
        product(w->mix[0], heard[t], x3[t], WIDTH, WIDTH);
        for (int i = 0; i < WIDTH; i++)
            x3[t][i] += x1[t][i];
        s4[t] = norm(x3[t], x4[t]);
        product(w->widen[0], x4[t], hidden[t], WIDE, WIDTH);
        for (int i = 0; i < WIDE; i++)
            hidden[t][i] = hidden[t][i] > 0.0 ? hidden[t][i] : 0.0;
        product(w->narrow[0], hidden[t], x5[t], WIDTH, WIDE);
        for (int i = 0; i < WIDTH; i++)
            x5[t][i] += x3[t][i];
        product(w->predict[0], x5[t], chances[t], TOKENS, WIDTH);
        softmax(chances[t], TOKENS);
        result -= log(chances[t][tokens[t + 1]]) / n;
    }
    double dk[BLOCK][WIDTH] = {{0}}, dv[BLOCK][WIDTH] = {{0}};
    memset(d, 0, sizeof *d);
    for (int t = n - 1; t >= 0; t--) { /* later positions have read this one's key and value */
        double dz[TOKENS], dx5[WIDTH] = {0}, dhidden[WIDE] = {0}, dx4[WIDTH] = {0}, dx3[WIDTH], dheard[WIDTH] = {0};
        double dq[WIDTH] = {0}, dx2[WIDTH] = {0}, dx1[WIDTH], dx0[WIDTH] = {0}, dshares[BLOCK];
        for (int i = 0; i < TOKENS; i++)
            dz[i] = (chances[t][i] - (i == tokens[t + 1])) / n;
        product_back(w->predict[0], d->predict[0], x5[t], dx5, dz, TOKENS, WIDTH);
        product_back(w->narrow[0], d->narrow[0], hidden[t], dhidden, dx5, WIDTH, WIDE);
        for (int i = 0; i < WIDE; i++)
            dhidden[i] = hidden[t][i] > 0.0 ? dhidden[i] : 0.0;
        product_back(w->widen[0], d->widen[0], x4[t], dx4, dhidden, WIDE, WIDTH);
        memcpy(dx3, dx5, sizeof dx3);
        norm_back(x3[t], s4[t], dx4, dx3);
        product_back(w->mix[0], d->mix[0], heard[t], dheard, dx3, WIDTH, WIDTH);
        for (int h = 0; h < HEADS; h++) {
            double mean = 0.0;
            for (int u = 0; u <= t; u++) {
                dshares[u] = 0.0;
                for (int i = 0; i < HEAD; i++) {
                    dshares[u] += dheard[HEAD * h + i] * v[u][HEAD * h + i];
                    dv[u][HEAD * h + i] += dheard[HEAD * h + i] * shares[t][h][u];
                }
                mean += dshares[u] * shares[t][h][u];
            }
            for (int u = 0; u <= t; u++) {
                double dscore = shares[t][h][u] * (dshares[u] - mean) / 2.0;
                for (int i = 0; i < HEAD; i++) {
                    dq[HEAD * h + i] += dscore * k[u][HEAD * h + i];
                    dk[u][HEAD * h + i] += dscore * q[t][HEAD * h + i];
                }
            }
        }
        product_back(w->query[0], d->query[0], x2[t], dx2, dq, WIDTH, WIDTH);
        product_back(w->key[0], d->key[0], x2[t], dx2, dk[t], WIDTH, WIDTH);
        product_back(w->value[0], d->value[0], x2[t], dx2, dv[t], WIDTH, WIDTH);
        memcpy(dx1, dx3, sizeof dx1);
        norm_back(x1[t], s2[t], dx2, dx1);
        norm_back(x0[t], s1[t], dx1, dx0);
        for (int i = 0; i < WIDTH; i++) {
            d->token[tokens[t]][i] += dx0[i];
            d->position[t][i] += dx0[i];
        }
    }
    return result;
}

/* One step a name: `lengths[i]` positions, whose tokens lie in a row of BLOCK + 1. */
void train(Weights *w, Weights *d, Weights *m, Weights *v, const int *tokens, const int *lengths, long names, long done,
           double *losses)
{
    double *p = (double *)w, *dp = (double *)d, *ms = (double *)m, *vs = (double *)v;
    for (long i = 0; i < names; i++, done++) {
        losses[i] = loss(w, d, tokens + i * (BLOCK + 1), lengths[i]);
        double rate = done < 1000 ? 0.01 * (1.0 - done / 1000.0) : 0.0;
        double step = rate / (1.0 - pow(0.85, done + 1)), scale = 1.0 / sqrt(1.0 - pow(0.99, done + 1));
#pragma omp simd
        for (int j = 0; j < COUNT; j++) {
            ms[j] = 0.85 * ms[j] + 0.15 * dp[j];
            vs[j] = 0.99 * vs[j] + 0.01 * dp[j] * dp[j];
            p[j] -= step * ms[j] / (sqrt(vs[j]) * scale + 1e-8);
        }
    }
}
