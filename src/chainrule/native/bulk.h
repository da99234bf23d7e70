/* Numbers in bulk, between Values and a buffer of doubles: for compiled programs. */

static void read_data(Node *node, double *number) { *number = node->data; }
static void write_data(Node *node, double *number) { write_number(node, *number); }
static void read_grad(Node *node, double *number) { *number = node->grad; }
static void write_grad(Node *node, double *number) { node->grad = *number; }
static void add_to_grad(Node *node, double *number)
{
    if (takes_gradient(node))
        node->grad += *number;
}

/* Nodes lie apart in memory, and a model's parameters in the last cache at best: those ahead are asked for early. */
enum { AHEAD = 24 };

static inline Py_ALWAYS_INLINE PyObject *move_numbers(PyObject *args, void (*move)(Node *, double *))
{
    PyObject *values;
    Py_buffer buffer;
    if (!PyArg_ParseTuple(args, "O!w*", &PyList_Type, &values, &buffer))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(values);
    double *numbers = buffer.buf;
    PyObject *other = NULL; /* the first that is no Value */
    if (buffer.len < count * (Py_ssize_t)sizeof(double)) {
        PyErr_SetString(PyExc_ValueError, "the buffer has fewer numbers than there are Values");
        count = 0;
    }
    for (Py_ssize_t k = 0; other == NULL && k < count; k++) {
        PyObject *value = PyList_GET_ITEM(values, k);
        PREFETCH(PyList_GET_ITEM(values, k + AHEAD < count ? k + AHEAD : k));
        if (is_value(value))
            move((Node *)value, numbers + k);
        else
            other = value;
    }
    if (other)
        PyErr_Format(PyExc_TypeError, "`values` must be Values, got %s", Py_TYPE(other)->tp_name);
    PyBuffer_Release(&buffer);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *native_read_data(PyObject *Py_UNUSED(module), PyObject *args)
{
    return move_numbers(args, read_data);
}

static PyObject *native_write_data(PyObject *Py_UNUSED(module), PyObject *args)
{
    return refused("sets `.data` of Values") ? NULL : move_numbers(args, write_data);
}

static PyObject *native_read_grad(PyObject *Py_UNUSED(module), PyObject *args)
{
    return move_numbers(args, read_grad);
}

static PyObject *native_write_grad(PyObject *Py_UNUSED(module), PyObject *args)
{
    return refused("sets `.grad` of Values") ? NULL : move_numbers(args, write_grad);
}

static PyObject *native_add_to_grad(PyObject *Py_UNUSED(module), PyObject *args)
{
    return move_numbers(args, add_to_grad);
}

static PyObject *native_refrozen(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(flags_replaced);
}

/* One byte for each Value of a list: 1 if it takes a gradient, 0 if it is frozen. */
static PyObject *native_takes_gradient(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *values;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &values))
        return NULL;
    const Py_ssize_t count = PyList_GET_SIZE(values);
    PyObject *flags = PyBytes_FromStringAndSize(NULL, count);
    for (Py_ssize_t k = 0; flags && k < count; k++) {
        PyObject *value = PyList_GET_ITEM(values, k);
        if (is_value(value)) {
            PyBytes_AS_STRING(flags)[k] = (char)takes_gradient((Node *)value);
        } else {
            PyErr_Format(PyExc_TypeError, "`values` must be Values, got %s", Py_TYPE(value)->tp_name);
            Py_CLEAR(flags);
        }
    }
    return flags;
}

static PyObject *native_replaced(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(numbers_replaced);
}

/* The forward pass again, from the leaves' present data, in the order in which the nodes were made. */
static PyObject *native_replay(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *values;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &values))
        return NULL;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(values); k++) {
        PyObject *value = PyList_GET_ITEM(values, k);
        if (!is_value(value))
            return PyErr_Format(PyExc_TypeError, "`values` must be Values, got %s", Py_TYPE(value)->tp_name);
        Node *node = (Node *)value;
        if (node->op == NO_RULE)
            continue;
        double data, few_numbers[4], *numbers = few_numbers;
        if (node->count > 4 && (numbers = PyMem_New(double, node->count)) == NULL)
            return PyErr_NoMemory();
        for (uint32_t j = 0; j < node->count; j++)
            numbers[j] = operands_of(node)[j]->data;
        PyObject *rule = node->op == USER_RULE ? user_rule_of(node) : NULL;
        Py_INCREF(node); /* a user's rule may empty the list */
        int failed = forward_of(rule, node->op, numbers, node->count, &data);
        if (!failed)
            replace_number(node, data);
        Py_DECREF(node);
        Py_XDECREF(rule);
        if (numbers != few_numbers)
            PyMem_Free(numbers);
        if (failed)
            return NULL;
    }
    Py_RETURN_NONE;
}

/* Values of a list, where all are Values: 1 if so, 0 if not, -1 for an error. */
static int add_list(Pending *found, PyObject *values)
{
    int state = 1;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(values) && state > 0; k++) {
        PyObject *value = PyList_GET_ITEM(values, k);
        state = !is_value(value) ? 0 : add_unseen(found, (Node *)value) < 0 ? -1 : 1;
    }
    return state;
}

/* Whatever lies below what was found, down to a serial number; or of that only what a gradient reaches. */
static int add_below(Pending *found, uint64_t since, int along_gradients)
{
    int failed = 0;
    for (size_t done = 0; done < found->count && !failed; done++) {
        Node *node = found->nodes[done];
        for (uint32_t k = 0; node->serial > since && k < node->count && !failed; k++)
            if (!along_gradients || passes_to(node, k))
                failed = add_unseen(found, operands_of(node)[k]);
    }
    return failed;
}

static PyObject *places_of_operands(const Pending *found, Node *node, uint64_t since)
{
    uint32_t count = node->serial > since ? node->count : 0;
    PyObject *places = PyTuple_New(count);
    for (uint32_t k = 0; places && k < count; k++) {
        uint64_t serial = operands_of(node)[k]->serial;
        size_t low = 0, high = found->count;
        while (high - low > 1) { /* serials rise */
            size_t middle = low + (high - low) / 2;
            if (found->nodes[middle]->serial <= serial)
                low = middle;
            else
                high = middle;
        }
        PyObject *place = PyLong_FromSize_t(low);
        if (place == NULL)
            Py_CLEAR(places);
        else
            PyTuple_SET_ITEM(places, k, place);
    }
    return places;
}

static PyObject *trace_any(PyObject *roots, uint64_t since); /* the same where some are no Values */

/* The nodes below roots, oldest first; the rule of each, None if it has none or is not what passes gradients on; the
   places of its operands. Nodes that are not younger than `since` count as leaves. */
static PyObject *native_trace(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *roots, *nodes = NULL, *rules = NULL, *operands = NULL, *result = NULL;
    unsigned long long since;
    Pending found = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "O!K", &PyList_Type, &roots, &since))
        return NULL;
    int state = add_list(&found, roots);
    int failed = state <= 0 || add_below(&found, since, 0) < 0;
    unmark(&found);
    Py_ssize_t count = (Py_ssize_t)found.count;
    for (Py_ssize_t k = 0; k < count; k++)
        Py_INCREF(found.nodes[k]); /* each list that is made can start the collector, and so Python code */
    if (failed)
        goto end;
    if (count)
        qsort(found.nodes, found.count, sizeof(Node *), older_first);
    nodes = PyList_New(count);
    rules = PyList_New(count);
    operands = PyList_New(count);
    if (nodes == NULL || rules == NULL || operands == NULL)
        goto end;
    for (Py_ssize_t k = 0; k < count; k++) {
        Node *node = found.nodes[k];
        int by_hand = closure_of(node) || overrides_backward(node);
        PyList_SET_ITEM(nodes, k, Py_NewRef(node));
        PyList_SET_ITEM(rules, k, by_hand || node->serial <= since ? Py_NewRef(Py_None) : get_rule((PyObject *)node, NULL));
        PyObject *places = places_of_operands(&found, node, since);
        if (places == NULL)
            goto end;
        PyList_SET_ITEM(operands, k, places);
    }
    result = PyTuple_Pack(3, nodes, rules, operands);
end:
    for (Py_ssize_t k = 0; k < count; k++)
        Py_DECREF(found.nodes[k]);
    PyMem_Free(found.nodes);
    Py_XDECREF(nodes);
    Py_XDECREF(rules);
    Py_XDECREF(operands);
    return state ? result : trace_any(roots, since);
}

/* Derivatives without a trace: for transforms, which leave every `grad` as it is. */

/* Inputs, outputs and whatever lies below the outputs down to the oldest input: what is older cannot depend on one.
   1 if all is well, 0 if some are not Values of this engine. */
static int collect_between(Pending *found, PyObject *outputs, PyObject *inputs, int along_gradients, uint64_t *oldest)
{
    int state = add_list(found, inputs);
    *oldest = UINT64_MAX;
    for (size_t k = 0; k < found->count; k++)
        if (found->nodes[k]->serial < *oldest)
            *oldest = found->nodes[k]->serial;
    if (state > 0)
        state = add_list(found, outputs);
    if (state > 0 && add_below(found, *oldest, along_gradients) < 0)
        state = -1;
    unmark(found);
    return state;
}

/* Runs no Python code between the first change of a gradient and the last, so no other thread sees one. */
static int pull(const Pending *found, uint64_t oldest, PyObject *outputs, const double *seeds, PyObject *inputs,
                double *results)
{
    double *before = PyMem_New(double, found->count);
    if (before == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t k = 0; k < found->count; k++) {
        before[k] = found->nodes[k]->grad;
        found->nodes[k]->grad = 0.0;
    }
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(outputs); k++)
        ((Node *)PyList_GET_ITEM(outputs, k))->grad += seeds[k];
    for (size_t k = 0; k < found->count; k++)
        if (found->nodes[k]->serial > oldest && found->nodes[k]->op != NO_RULE)
            builtin_backward(found->nodes[k]);
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(inputs); k++)
        results[k] = ((Node *)PyList_GET_ITEM(inputs, k))->grad;
    for (size_t k = 0; k < found->count; k++)
        found->nodes[k]->grad = before[k];
    PyMem_Free(before);
    return 0;
}

static PyObject *native_pull(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *outputs, *inputs, *answer = NULL;
    Py_buffer seeds, results;
    Pending found = {NULL, 0, 0};
    uint64_t oldest;
    if (!PyArg_ParseTuple(args, "O!y*O!w*", &PyList_Type, &outputs, &seeds, &PyList_Type, &inputs, &results))
        return NULL;
    int state = seeds.len == PyList_GET_SIZE(outputs) * (Py_ssize_t)sizeof(double) &&
                results.len == PyList_GET_SIZE(inputs) * (Py_ssize_t)sizeof(double);
    if (state)
        state = collect_between(&found, outputs, inputs, 1, &oldest);
    for (size_t k = 0; k < found.count && state > 0; k++)
        if (found.nodes[k]->serial > oldest && runs_python(found.nodes[k]))
            state = 0;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(inputs) && state > 0; k++)
        if (!takes_gradient((Node *)PyList_GET_ITEM(inputs, k)))
            state = 0;
    if (state > 0 && found.count) {
        qsort(found.nodes, found.count, sizeof(Node *), younger_first);
        if (pull(&found, oldest, outputs, seeds.buf, inputs, results.buf) < 0)
            state = -1;
    }
    if (state >= 0)
        answer = PyBool_FromLong(state);
    PyMem_Free(found.nodes);
    PyBuffer_Release(&seeds);
    PyBuffer_Release(&results);
    return answer;
}

/* Whether outputs depend on leaves that take gradients besides the inputs; None if some are not Values of this engine. */
static PyObject *native_meets_others(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *outputs, *inputs;
    Pending found = {NULL, 0, 0};
    uint64_t oldest;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &outputs, &PyList_Type, &inputs))
        return NULL;
    int state = collect_between(&found, outputs, inputs, 0, &oldest), met = 0;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(inputs) && state > 0; k++)
        ((Node *)PyList_GET_ITEM(inputs, k))->flags |= VISITED;
    for (size_t k = 0; k < found.count && state > 0 && !met; k++) {
        Node *node = found.nodes[k];
        met = !(node->flags & VISITED) && takes_gradient(node) && (node->count == 0 || node->serial < oldest);
    }
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(inputs) && state > 0; k++)
        ((Node *)PyList_GET_ITEM(inputs, k))->flags &= (uint16_t)~VISITED;
    PyMem_Free(found.nodes);
    if (state < 0)
        return NULL;
    return state ? PyBool_FromLong(met) : Py_NewRef(Py_None);
}

/* An optimizer's rule for every parameter that takes gradients. It was recorded on Values: `leaves` stand for the data
   and the gradient of a parameter and for what is remembered of it, `nodes` compute the `results`, data and memory after
   the step. What is remembered lies in `columns`, a buffer of doubles each. False, and nothing done, where it takes
   Python code or a comparison has looked at the one parameter that the rule was recorded for. No Python code runs in the
   loop, so nobody changes the lists meanwhile. */

enum { MOST_COLUMNS = 8, MOST_NODES = 128, ROWS = 32 };

typedef struct { /* a column for each node that the rule meets, with its numbers for some parameters, a row each */
    Node *nodes[MOST_NODES];
    double columns[MOST_NODES][ROWS];
    size_t count;
} Sheet;

static double *column_of(Sheet *sheet, Node *node)
{
    for (size_t k = 0; k < sheet->count; k++)
        if (sheet->nodes[k] == node)
            return sheet->columns[k];
    double *column = sheet->columns[sheet->count];
    sheet->nodes[sheet->count++] = node;
    for (int row = 0; row < ROWS; row++) /* of a constant they stay */
        column[row] = node->data;
    return column;
}

static int has_room(PyObject *leaves, PyObject *nodes, PyObject *results)
{
    size_t met = (size_t)(PyList_GET_SIZE(leaves) + PyList_GET_SIZE(results));
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(nodes); k++)
        met += 1 + ((Node *)PyList_GET_ITEM(nodes, k))->count;
    return met <= MOST_NODES;
}

static void step_all(PyObject *parameters, PyObject *leaves, PyObject *nodes, PyObject *results, double *const *memory)
{
    Sheet sheet = {.count = 0};
    double *before[MOST_COLUMNS + 2], *after[MOST_COLUMNS + 1], *operands[MOST_NODES][MOST_OPERANDS], *outs[MOST_NODES];
    Py_ssize_t remembered = PyList_GET_SIZE(leaves) - 2, count = PyList_GET_SIZE(nodes);
    for (Py_ssize_t k = 0; k < remembered + 2; k++)
        before[k] = column_of(&sheet, (Node *)PyList_GET_ITEM(leaves, k));
    for (Py_ssize_t k = 0; k < count; k++) {
        Node *node = (Node *)PyList_GET_ITEM(nodes, k);
        for (uint32_t j = 0; j < node->count; j++)
            operands[k][j] = column_of(&sheet, operands_of(node)[j]);
        outs[k] = column_of(&sheet, node);
    }
    for (Py_ssize_t k = 0; k < remembered + 1; k++)
        after[k] = column_of(&sheet, (Node *)PyList_GET_ITEM(results, k));
    for (Py_ssize_t first = 0; first < PyList_GET_SIZE(parameters); first += ROWS) {
        Node **part = (Node **)PySequence_Fast_ITEMS(parameters) + first;
        Py_ssize_t left = PyList_GET_SIZE(parameters) - first, rows = left < ROWS ? left : ROWS;
        for (Py_ssize_t i = 0; i < rows; i++) {
            before[0][i] = part[i]->data;
            before[1][i] = part[i]->grad;
        }
        for (Py_ssize_t k = 0; k < remembered; k++)
            memcpy(before[k + 2], memory[k] + first, (size_t)rows * sizeof(double));
        for (Py_ssize_t k = 0; k < count; k++)
            builtin_forwards(((Node *)PyList_GET_ITEM(nodes, k))->op, ROWS, operands[k], outs[k]);
        for (Py_ssize_t i = 0; i < rows; i++) {
            if (!takes_gradient(part[i]))
                continue;
            write_number(part[i], after[0][i]);
            for (Py_ssize_t k = 0; k < remembered; k++)
                memory[k][first + i] = after[k + 1][i];
        }
    }
}

static int is_for_all(PyObject *leaves, PyObject *nodes)
{
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(leaves); k++)
        if (((Node *)PyList_GET_ITEM(leaves, k))->flags & READ)
            return 0;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(nodes); k++) {
        Node *node = (Node *)PyList_GET_ITEM(nodes, k);
        if (node->flags & READ || node->op >= BUILTIN_OPS)
            return 0;
    }
    return 1;
}

static int are_values(PyObject *list)
{
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list); k++)
        if (!is_value(PyList_GET_ITEM(list, k)))
            return 0;
    return 1;
}

static PyObject *native_step(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *parameters, *leaves, *nodes, *results, *columns;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!", &PyList_Type, &parameters, &PyList_Type, &leaves, &PyList_Type, &nodes,
                          &PyList_Type, &results, &PyList_Type, &columns))
        return NULL;
    Py_buffer buffers[MOST_COLUMNS];
    double *numbers[MOST_COLUMNS];
    Py_ssize_t count = PyList_GET_SIZE(columns), held = 0;
    while (count <= MOST_COLUMNS && held < PyList_GET_SIZE(columns) &&
           PyObject_GetBuffer(PyList_GET_ITEM(columns, held), &buffers[held], PyBUF_WRITABLE) == 0) {
        numbers[held] = buffers[held].buf;
        held++;
    }
    if (PyErr_Occurred() && (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_TypeError)))
        PyErr_Clear(); /* no buffer: Python must */
    int fits = !PyErr_Occurred() && held == count && PyList_GET_SIZE(leaves) == count + 2 && PyList_GET_SIZE(results) == count + 1 &&
               are_values(parameters) && are_values(leaves) && are_values(nodes) && are_values(results) &&
               is_for_all(leaves, nodes) && has_room(leaves, nodes, results);
    for (Py_ssize_t k = 0; k < held; k++)
        fits = fits && buffers[k].len == PyList_GET_SIZE(parameters) * (Py_ssize_t)sizeof(double);
    if (fits)
        step_all(parameters, leaves, nodes, results, numbers);
    for (Py_ssize_t k = 0; k < held; k++)
        PyBuffer_Release(&buffers[k]);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(fits);
}
