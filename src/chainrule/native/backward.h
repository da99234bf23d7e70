/* The backward pass. */

static PyObject *get_operands(PyObject *self, void *unused);

static PyObject *user_rule_of(const Node *node) /* a new reference: Python code may give the node another __init__ */
{
    return Py_NewRef(extra_of(node)->rule);
}

static int push_user_rule(Node *node)
{
    PyObject *row = user_rule_of(node); /* held, as the operands are: a rule can do anything to the node */
    PyObject *operands = get_operands((PyObject *)node, NULL);
    PyObject *partials = operands ? PyObject_GetAttrString(row, "partials") : NULL;
    Py_ssize_t count = operands ? PyTuple_GET_SIZE(operands) : 0;
    double grad = node->grad, few_numbers[5], *numbers = few_numbers;
    int failed = -1;
    if (partials == NULL || operands == NULL || !PyTuple_Check(partials) || PyTuple_GET_SIZE(partials) != count) {
        if (partials && operands)
            PyErr_SetString(PyExc_TypeError, "an op's `partials` must be a tuple with an entry for each operand");
        goto done;
    }
    if (count > 4 && (numbers = PyMem_New(double, count + 1)) == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    numbers[0] = node->data;
    for (Py_ssize_t k = 0; k < count; k++)
        numbers[k + 1] = ((Node *)PyTuple_GET_ITEM(operands, k))->data;
    for (Py_ssize_t k = 0; k < count; k++) {
        Node *operand = (Node *)PyTuple_GET_ITEM(operands, k);
        PyObject *rule = PyTuple_GET_ITEM(partials, k);
        if (rule == Py_None || !takes_gradient(operand))
            continue;
        double partial;
        PyObject *result = call_rule(rule, numbers, count + 1);
        int bad = result == NULL || to_double(result, "the op's partial", &partial) < 0;
        Py_XDECREF(result);
        if (bad)
            goto done;
        operand->grad += grad * partial;
    }
    failed = 0;
done:
    if (numbers != few_numbers)
        PyMem_Free(numbers);
    Py_XDECREF(operands);
    Py_XDECREF(partials);
    Py_DECREF(row);
    return failed;
}

static inline PyObject *closure_of(const Node *node)
{
    Extra *extra = extra_of(node);
    return extra ? extra->closure : NULL;
}

static int overrides_backward(const Node *node) /* a subclass may define `_backward` as a method */
{
    if (Py_IS_TYPE(node, ValueType))
        return 0;
    return _PyType_Lookup(Py_TYPE(node), backward_name) != _PyType_Lookup(ValueType, backward_name); /* no Python runs */
}

static inline int runs_python(const Node *node)
{
    return node->op == USER_RULE || closure_of(node) != NULL || overrides_backward(node);
}

static int push(Node *node) /* by the node's rule, not by a user's closure */
{
    if (node->op == USER_RULE)
        return push_user_rule(node);
    if (node->op != NO_RULE)
        builtin_backward(node);
    return 0;
}

static int push_or_call(Node *node)
{
    if (closure_of(node) == NULL && !overrides_backward(node))
        return push(node);
    PyObject *closure = PyObject_GetAttr((PyObject *)node, backward_name);
    if (closure == NULL)
        return -1;
    PyObject *result = PyObject_CallNoArgs(closure);
    Py_DECREF(closure);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Nodes that still have to pass their gradient on. Their own is complete when all younger ones have. */
typedef struct {
    Node **nodes;
    size_t count, capacity;
} Pending;

static int reserve(Pending *pending, size_t capacity)
{
    if (capacity <= pending->capacity)
        return 0;
    capacity = capacity > 2 * pending->capacity ? capacity : 2 * pending->capacity;
    Node **nodes = capacity <= PY_SSIZE_T_MAX / sizeof(Node *)
                       ? PyMem_Realloc(pending->nodes, capacity * sizeof(Node *)) /* leaves the old ones if it fails */
                       : NULL;
    if (nodes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(nodes + pending->capacity, 0, (capacity - pending->capacity) * sizeof(Node *));
    pending->nodes = nodes;
    pending->capacity = capacity;
    return 0;
}

static int add_unseen(Pending *found, Node *node)
{
    if (node->flags & VISITED)
        return 0;
    if (reserve(found, found->count + 1) < 0)
        return -1;
    node->flags |= VISITED;
    found->nodes[found->count++] = node;
    return 0;
}

static void unmark(const Pending *found)
{
    for (size_t k = 0; k < found->count; k++)
        found->nodes[k]->flags &= (uint16_t)~VISITED;
}

static inline int passes_on(const Node *node)
{
    return node->count || closure_of(node) || overrides_backward(node);
}

/* Whether the node has a derivative with respect to operand k: the pass leaves alone what no gradient reaches, because
   0 times the infinite slope of a node behind a comparison would be NaN. */
static inline int passes_to(const Node *node, uint32_t k)
{
    if (node->op == USER_RULE)
        return k >= 64 || !(extra_of(node)->silent >> k & 1);
    return node->op == NO_RULE || !(silent_operands[node->op] >> k & 1);
}

/* The quick way, in one sweep. Nodes made one after another have nearly consecutive serials: lay them out by
   age, the root at place 0. Whoever needs a node is younger, and has put it in its place before the sweep
   comes by. Stops at a node that runs Python code or has operands much older than itself, and leaves what is
   then pending to the general way. */
static int sweep(Pending *pending, Node *root)
{
    size_t place = 0, done = 0;
    if (reserve(pending, 256) < 0)
        return -1;
    pending->nodes[0] = root;
    pending->count = 1;
    for (; place < pending->count; place++) {
        Node *node = pending->nodes[place];
        if (node == NULL)
            continue;
        if (runs_python(node))
            break;
        Node **operands = operands_of(node);
        for (uint32_t k = 0; k < node->count; k++) {
            if (!passes_to(node, k) || !passes_on(operands[k]))
                continue;
            uint64_t age = root->serial - operands[k]->serial;
            if (age <= place || age / 16 > done + 8192)
                goto stop;
            if (age >= pending->count) {
                if (reserve(pending, age + 1) < 0)
                    return -1;
                pending->count = age + 1;
            }
            if (pending->nodes[age] == NULL) {
                pending->nodes[age] = operands[k];
                operands[k]->grad = 0.0;
            }
        }
        builtin_backward(node);
        done++;
    }
stop:;
    size_t left = 0;
    for (; place < pending->count; place++)
        if (pending->nodes[place])
            pending->nodes[left++] = pending->nodes[place];
    pending->count = left;
    return 0;
}

static int older_first(const void *a, const void *b)
{
    uint64_t left = (*(Node *const *)a)->serial, right = (*(Node *const *)b)->serial;
    return (left > right) - (left < right);
}

static int younger_first(const void *a, const void *b)
{
    return older_first(b, a);
}

/* The general way: find all nodes below the pending ones, sort, and only then run them, for Python code may
   do anything: free nodes, build on them, call backward. So hold them all, unmarked, until the end. */
static int finish(Pending *pending)
{
    int failed = 0;
    for (size_t k = 0; k < pending->count; k++)
        pending->nodes[k]->flags |= VISITED;
    for (size_t done = 0; done < pending->count && !failed; done++) {
        Node *node = pending->nodes[done];
        int by_hand = closure_of(node) || overrides_backward(node);
        for (uint32_t k = 0; k < node->count && !failed; k++) {
            Node *operand = operands_of(node)[k];
            if (operand->flags & VISITED || !passes_on(operand) || !(by_hand || passes_to(node, k)))
                continue;
            operand->grad = 0.0;
            failed = add_unseen(pending, operand);
        }
    }
    unmark(pending);
    for (size_t k = 0; k < pending->count; k++)
        Py_INCREF(pending->nodes[k]);
    qsort(pending->nodes, pending->count, sizeof(Node *), younger_first);
    for (size_t k = 0; k < pending->count && !failed; k++)
        failed = push_or_call(pending->nodes[k]);
    for (size_t k = 0; k < pending->count; k++)
        Py_DECREF(pending->nodes[k]);
    return failed;
}

/* Whether who observes backward passes saw to this one (1), leaves it to us (0) or raised an error (-1). */
static int ask_pass_observer(PyObject *root, double seed)
{
    PyObject *asked = Py_NewRef(pass_observer), *answer = PyObject_CallFunction(asked, "Od", root, seed);
    int done = answer ? PyObject_IsTrue(answer) : -1;
    Py_DECREF(asked);
    Py_XDECREF(answer);
    return done;
}

static PyObject *value_backward(PyObject *self, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"seed", NULL};
    PyObject *number = NULL;
    double seed = 1.0;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|O:backward", keywords, &number) ||
        (number && to_double(number, "seed", &seed) < 0))
        return NULL;
    int observed = pass_observer ? ask_pass_observer(self, seed) : 0;
    if (observed < 0)
        return NULL;
    if (observed)
        Py_RETURN_NONE;
    Pending pending = {NULL, 0, 0};
    ((Node *)self)->grad = seed;
    int failed = sweep(&pending, (Node *)self);
    if (!failed && pending.count)
        failed = finish(&pending);
    PyMem_Free(pending.nodes);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *value_push(PyObject *self, PyObject *Py_UNUSED(unused))
{
    if (push((Node *)self) < 0)
        return NULL;
    Py_RETURN_NONE;
}
