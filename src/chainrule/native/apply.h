/* Ops applied to operands. */

static inline PyObject *unary(int op, double data, PyObject *operand)
{
    if (forgets())
        return read_number((Node *)operand) < 0 ? NULL : frozen_leaf(data);
    Node *node = small_node(data, op, 1);
    if (node == NULL)
        return NULL;
    node->operands.few[0] = (Node *)Py_NewRef(operand);
    if (((Node *)operand)->flags & INHERITED)
        inherit(node, ((Node *)operand)->flags);
    return made(node);
}

static inline PyObject *binary(int op, double data, Node *left, Node *right) /* steals both */
{
    Node *node = forgets() ? NULL : small_node(data, op, 2);
    if (node == NULL) {
        int failed = !forgets() || read_number(left) < 0 || read_number(right) < 0;
        Py_DECREF(left);
        Py_DECREF(right);
        return failed ? NULL : frozen_leaf(data);
    }
    node->operands.few[0] = left;
    node->operands.few[1] = right;
    int flags = left->flags | right->flags;
    if (flags & INHERITED)
        inherit(node, flags);
    return made(node);
}

static int to_double(PyObject *number, const char *argument, double *result)
{
    if (PyFloat_CheckExact(number)) {
        *result = PyFloat_AS_DOUBLE(number);
        return 0;
    }
    if (PyLong_CheckExact(number)) {
        double converted = PyLong_AsDouble(number);
        if (converted != -1.0 || !PyErr_Occurred()) {
            *result = converted;
            return 0;
        }
        PyErr_Clear(); /* too large: as_float says so with the argument's name */
    }
    PyObject *converted = PyObject_CallFunction(as_float, "Os", number, argument); /* a float: as_float sees to it */
    if (converted == NULL)
        return -1;
    *result = PyFloat_AS_DOUBLE(converted);
    Py_DECREF(converted);
    return 0;
}

static inline Node *to_operand(PyObject *object) /* a new reference; a plain number becomes a constant */
{
    if (is_value(object))
        return (Node *)Py_NewRef(object);
    double data;
    if (to_double(object, "operand", &data) < 0)
        return NULL;
    Node *node = new_node(data, NO_RULE, 0);
    if (node)
        node->flags |= CONSTANT;
    return node;
}

static Extra *with_extra(Node *node) /* likewise, or an error is set */
{
    Extra *extra = extra_if_there_is_memory(node);
    return extra ? extra : (Extra *)PyErr_NoMemory();
}

static PyObject *call_rule(PyObject *function, const double *numbers, Py_ssize_t count)
{
    PyObject *arguments = PyTuple_New(count);
    for (Py_ssize_t k = 0; arguments && k < count; k++) {
        PyObject *number = PyFloat_FromDouble(numbers[k]);
        if (number == NULL)
            Py_CLEAR(arguments);
        else
            PyTuple_SET_ITEM(arguments, k, number);
    }
    PyObject *result = arguments ? PyObject_CallObject(function, arguments) : NULL;
    Py_XDECREF(arguments);
    return result;
}

static int forward_of(PyObject *rule, int op, const double *numbers, Py_ssize_t count, double *result)
{
    if (op < BUILTIN_OPS) {
        *result = builtin_forward(op, numbers);
        return 0;
    }
    PyObject *function = PyObject_GetAttrString(rule, "forward");
    PyObject *out = function ? call_rule(function, numbers, count) : NULL;
    int failed = out == NULL || to_double(out, "the op's result", result) < 0;
    Py_XDECREF(function);
    Py_XDECREF(out);
    return failed ? -1 : 0;
}

static int too_many(Py_ssize_t operands)
{
    if ((size_t)operands > UINT32_MAX)
        PyErr_Format(PyExc_OverflowError, "a node can have %u operands at most, got %zd", UINT32_MAX, operands);
    return (size_t)operands > UINT32_MAX;
}

static uint64_t silent_of(PyObject *rule)
{
    PyObject *partials = PyObject_GetAttrString(rule, "partials");
    uint64_t silent = 0;
    if (partials == NULL)
        PyErr_Clear(); /* the backward pass will complain */
    for (Py_ssize_t k = 0; partials && PyTuple_Check(partials) && k < PyTuple_GET_SIZE(partials) && k < 64; k++)
        silent |= (uint64_t)(PyTuple_GET_ITEM(partials, k) == Py_None) << k;
    Py_XDECREF(partials);
    return silent;
}

static PyObject *apply(PyObject *rule, int op, PyObject *const *operands, Py_ssize_t count)
{
    double data = 0.0, few_numbers[4], *numbers = few_numbers;
    if (too_many(count))
        return NULL;
    if (count > 4 && (numbers = PyMem_New(double, count)) == NULL)
        return PyErr_NoMemory();
    Node *node = new_node(0.0, op, (uint32_t)count);
    if (node == NULL)
        goto done;
    Node **own = operands_of(node);
    if (count <= INLINE_OPERANDS) /* more are zeros from the start */
        memset(own, 0, sizeof node->operands.few);
    int flags = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        Node *operand = to_operand(operands[k]);
        if (operand == NULL)
            goto failed;
        own[k] = operand;
        numbers[k] = operand->data;
        flags |= operand->flags;
    }
    if (forward_of(rule, op, numbers, count, &data) < 0)
        goto failed;
    if (forgets()) {
        if (read_operands(node) < 0)
            goto failed;
        Py_SETREF(node, (Node *)frozen_leaf(data));
        goto done;
    }
    node->data = data;
    node->serial = next_serial++; /* younger than the constants made above */
    if (op == USER_RULE) {
        Extra *extra = with_extra(node);
        if (extra == NULL)
            goto failed;
        extra->rule = Py_NewRef(rule);
        extra->silent = silent_of(rule);
        flags |= TRACKED; /* a user's rule can refer to anything */
    }
    if (flags & INHERITED)
        inherit(node, flags);
    node = (Node *)made(node);
    goto done;
failed:
    Py_CLEAR(node);
done:
    if (numbers != few_numbers)
        PyMem_Free(numbers);
    return (PyObject *)node;
}

static PyObject *apply_method(int op, PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *rule = PyList_GET_ITEM(table, op);
    if (names == NULL && count + 1 == arities[op]) {
        PyObject *all[MOST_OPERANDS] = {self};
        memcpy(all + 1, args, (size_t)count * sizeof(PyObject *));
        return apply(rule, op, all, count + 1);
    }
    PyObject *given = PyTuple_New(count + 1), *named = PyDict_New(), *operands = NULL, *node = NULL;
    if (given == NULL || named == NULL)
        goto done;
    PyTuple_SET_ITEM(given, 0, Py_NewRef(self));
    for (Py_ssize_t k = 0; k < count; k++)
        PyTuple_SET_ITEM(given, k + 1, Py_NewRef(args[k]));
    for (Py_ssize_t k = 0; names && k < PyTuple_GET_SIZE(names); k++)
        if (PyDict_SetItem(named, PyTuple_GET_ITEM(names, k), args[count + k]) < 0)
            goto done;
    operands = PyObject_CallMethod(rule, "bind", "OO", given, named);
    if (operands)
        node = apply(rule, op, &PyTuple_GET_ITEM(operands, 0), PyTuple_GET_SIZE(operands));
done:
    Py_XDECREF(given);
    Py_XDECREF(named);
    Py_XDECREF(operands);
    return node;
}

static PyObject *value_apply(PyObject *Py_UNUSED(unused), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "the call should look like _apply(rule, operands), with a tuple of operands");
        return NULL;
    }
    PyObject *rule = args[0], *operands = args[1];
    PyObject *code = PyObject_GetAttr(rule, code_name);
    long op = code ? PyLong_AsLong(code) : -1;
    Py_XDECREF(code);
    if (op == -1 && PyErr_Occurred())
        return NULL;
    if (op < 0 || op >= BUILTIN_OPS || PyList_GET_ITEM(table, op) != rule)
        op = USER_RULE;
    else if (PyTuple_GET_SIZE(operands) != arities[op]) {
        PyErr_Format(PyExc_TypeError, "%R takes %d operands, got %zd", rule, arities[op], PyTuple_GET_SIZE(operands));
        return NULL;
    }
    return apply(rule, (int)op, &PyTuple_GET_ITEM(operands, 0), PyTuple_GET_SIZE(operands));
}

/* `Op.__call__` where operands are floats or plain Values; everything else is left to the one in Python. */
static PyObject *call_op(PyObject *rule, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *code = names == NULL ? PyObject_GetAttr(rule, code_name) : NULL;
    long op = code && PyLong_CheckExact(code) ? PyLong_AsLong(code) : -1;
    Py_XDECREF(code);
    if (op == -1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError) && !PyErr_ExceptionMatches(PyExc_OverflowError))
            return NULL;
        PyErr_Clear(); /* not a row of the table */
    }
    if (op >= 0 && op < BUILTIN_OPS && PyList_GET_ITEM(table, op) == rule && count == arities[op]) {
        Py_ssize_t floats = 0, values = 0;
        double numbers[MOST_OPERANDS];
        for (Py_ssize_t k = 0; k < count; k++) {
            if (PyFloat_CheckExact(args[k]))
                numbers[floats++] = PyFloat_AS_DOUBLE(args[k]);
            else
                values += Py_IS_TYPE(args[k], ValueType);
        }
        if (floats == count)
            return PyFloat_FromDouble(builtin_forward((int)op, numbers));
        if (floats + values == count)
            return apply(rule, (int)op, args, count);
    }
    PyObject *few[8], **all = few, *result = NULL;
    Py_ssize_t given = count + (names ? PyTuple_GET_SIZE(names) : 0);
    if (given >= 8 && (all = PyMem_New(PyObject *, given + 1)) == NULL)
        return PyErr_NoMemory();
    all[0] = rule;
    memcpy(all + 1, args, (size_t)given * sizeof(PyObject *));
    result = PyObject_Vectorcall(call_in_python, all, (size_t)count + 1, names);
    if (all != few)
        PyMem_Free(all);
    return result;
}

static PyMethodDef call_method = {"__call__", (PyCFunction)(void (*)(void))call_op, METH_FASTCALL | METH_KEYWORDS,
                                  PyDoc_STR("__call__($self, /, *operands, **named)\n--\n\nApply the op.")};
