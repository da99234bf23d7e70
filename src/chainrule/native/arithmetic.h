/* Sums, differences and products on a tape, in any order: one loop, which does not jump from one kind to another.

   Nobody can predict which kind is next where each node depends on the last few, and a wrong guess takes as long as
   five nodes. So each node computes the sum or difference and the product, and keeps one by a mask. A node is five
   integers: its operands, where their gradients go, and its kind. */

enum { SUM, DIFFERENCE, PRODUCT, NODE = 5 };

#ifdef __GNUC__
typedef double Pair __attribute__((vector_size(16)));
typedef long long Bits __attribute__((vector_size(16)));

#define SIGN_BIT (-0x7fffffffffffffffLL - 1)
static const Bits flips[] = {{0, 0}, {SIGN_BIT, 0}, {0, 0}}; /* of the second operand's sign, in a sum */
static const Bits is_product[] = {{0, 0}, {0, 0}, {-1, -1}};
static const Pair slopes_of_sums[] = {{1.0, 1.0}, {1.0, -1.0}, {0.0, 0.0}};

static inline double arithmetic(int kind, double a, double b)
{
    const Pair x = {a, 0.0}, y = {b, 0.0};
    const Pair sum = x + (Pair)((Bits)y ^ flips[kind]), product = x * y;
    return ((Pair)(((Bits)sum & ~is_product[kind]) | ((Bits)product & is_product[kind])))[0];
}

/* The gradient times the slopes by both operands. */
static inline void arithmetic_slopes(int kind, double a, double b, double grad, double *by_a, double *by_b)
{
    const Pair others = {b, a}, both = {grad, grad};
    const Pair found = both * (Pair)(((Bits)others & is_product[kind]) | (Bits)slopes_of_sums[kind]);
    *by_a = found[0];
    *by_b = found[1];
}
#else
static inline double arithmetic(int kind, double a, double b)
{
    return kind == PRODUCT ? a * b : kind == SUM ? a + b : a - b;
}

static inline void arithmetic_slopes(int kind, double a, double b, double grad, double *by_a, double *by_b)
{
    *by_a = grad * (kind == PRODUCT ? b : 1.0);
    *by_b = grad * (kind == PRODUCT ? a : kind == SUM ? 1.0 : -1.0);
}
#endif

static inline void arithmetic_forward(const int32_t *node, double *data, Py_ssize_t i, Py_ssize_t end)
{
    for (; i < end; i++, node += NODE)
        data[i] = arithmetic(node[4], data[node[0]], data[node[1]]);
}

/* From node `i` - 1 down to `end`; `node` comes after the first of them. */
static inline void arithmetic_backward(const int32_t *node, const double *restrict data, double *restrict grads,
                                       Py_ssize_t i, Py_ssize_t end)
{
    while (i-- > end) {
        double by_a, by_b;
        node -= NODE;
        arithmetic_slopes(node[4], data[node[0]], data[node[1]], grads[i], &by_a, &by_b);
        grads[i] = 0.0;
        grads[node[2]] += by_a;
        grads[node[3]] += by_b;
    }
}
