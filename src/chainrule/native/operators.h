/* Operators, sums and comparisons. */

/* Arithmetic. */

static inline PyObject *no_number(void) /* not a number: let the other operand try */
{
    if (!PyErr_ExceptionMatches(PyExc_TypeError))
        return NULL;
    PyErr_Clear();
    Py_RETURN_NOTIMPLEMENTED;
}

static inline int is_for_carrier(PyObject *left, PyObject *right) /* such as a traced number: it has its own way */
{
    PyObject *other = is_value(left) ? right : left;
    int is_common = is_value(other) || PyFloat_CheckExact(other) || PyLong_CheckExact(other);
    return !is_common && PyObject_TypeCheck(other, (PyTypeObject *)carrier_type);
}

#define BINARY_OPERATOR(name)                                                                                 \
    static PyObject *operator_##name(PyObject *left, PyObject *right)                                         \
    {                                                                                                         \
        if (is_for_carrier(left, right))                                                                      \
            Py_RETURN_NOTIMPLEMENTED;                                                                         \
        Node *a = to_operand(left), *b = a ? to_operand(right) : NULL;                                        \
        if (b == NULL) {                                                                                      \
            Py_XDECREF(a);                                                                                    \
            return no_number();                                                                               \
        }                                                                                                     \
        return binary(OP_##name, forward_##name(a->data, b->data), a, b);                                     \
    }
#define UNARY_OPERATOR(name)                                                                                  \
    static PyObject *operator_##name(PyObject *self)                                                          \
    {                                                                                                         \
        return unary(OP_##name, forward_##name(((Node *)self)->data), self);                                  \
    }

BINARY_OPERATOR(add)
BINARY_OPERATOR(sub)
BINARY_OPERATOR(mul)
BINARY_OPERATOR(div)
BINARY_OPERATOR(mod)
BINARY_OPERATOR(pow)
UNARY_OPERATOR(neg)
UNARY_OPERATOR(abs)

/* Sums as `functions.py` defines them, from left to right and from 0.0 on, for whatever can be added and multiplied. */

static inline int are_plain_values(PyObject *left, PyObject *right)
{
    return Py_IS_TYPE(left, ValueType) && Py_IS_TYPE(right, ValueType);
}

static inline PyObject *plus(PyObject *total, PyObject *term) /* steals both */
{
    if (term && are_plain_values(total, term))
        return binary(OP_add, forward_add(((Node *)total)->data, ((Node *)term)->data), (Node *)total, (Node *)term);
    PyObject *sum = term ? PyNumber_Add(total, term) : NULL;
    Py_DECREF(total);
    Py_XDECREF(term);
    return sum;
}

static inline PyObject *times(PyObject *x, PyObject *y)
{
    if (!are_plain_values(x, y))
        return PyNumber_Multiply(x, y);
    Node *left = (Node *)Py_NewRef(x), *right = (Node *)Py_NewRef(y);
    return binary(OP_mul, forward_mul(left->data, right->data), left, right);
}

static PyObject *native_total(PyObject *Py_UNUSED(module), PyObject *items)
{
    PyObject *iterator = PyObject_GetIter(items), *total = iterator ? PyFloat_FromDouble(0.0) : NULL, *item;
    while (total && (item = PyIter_Next(iterator)) != NULL)
        total = plus(total, item);
    Py_XDECREF(iterator);
    if (PyErr_Occurred())
        Py_CLEAR(total);
    return total;
}

static PyObject *native_dot(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "the call should look like dot(a, b), got %zd arguments", count);
    PyObject *a = PySequence_Tuple(args[0]), *b = a ? PySequence_Tuple(args[1]) : NULL, *total = NULL;
    Py_ssize_t length = b ? PyTuple_GET_SIZE(a) : 0;
    if (b && length != PyTuple_GET_SIZE(b))
        PyErr_Format(PyExc_ValueError, "`a` has the length %zd and `b` %zd: give two vectors of equal length", length,
                     PyTuple_GET_SIZE(b));
    else if (b)
        total = PyFloat_FromDouble(0.0);
    for (Py_ssize_t k = 0; total && k < length; k++) {
        PyObject *x = PyTuple_GET_ITEM(a, k), *y = PyTuple_GET_ITEM(b, k);
        total = plus(total, times(x, y));
    }
    Py_XDECREF(a);
    Py_XDECREF(b);
    return total;
}

static PyObject *operator_power(PyObject *left, PyObject *right, PyObject *modulus)
{
    if (modulus != Py_None)
        Py_RETURN_NOTIMPLEMENTED;
    return operator_pow(left, right);
}

static PyObject *value_positive(PyObject *self)
{
    return Py_NewRef(self);
}

static PyObject *value_conjugate(PyObject *self, PyObject *Py_UNUSED(unused)) /* NumPy's var and std ask for it */
{
    return value_positive(self);
}

/* What the watcher says to a look at a number: NULL is an error, None "go ahead", anything else the answer. */
static PyObject *ask_watcher(PyObject *deed, PyObject *left, PyObject *right)
{
    PyObject *asked = Py_NewRef(watcher); /* another thread may end its trace meanwhile */
    PyObject *answer = deed ? PyObject_CallFunctionObjArgs(asked, deed, left, right, NULL) : NULL;
    Py_DECREF(asked);
    return answer;
}

static int refused(const char *deed)
{
    if (watcher == NULL)
        return 0;
    PyObject *text = PyUnicode_FromString(deed), *answer = ask_watcher(text, NULL, NULL);
    Py_XDECREF(text);
    Py_XDECREF(answer);
    return answer == NULL;
}

static int value_bool(PyObject *self)
{
    if (watcher) { /* a number is true if it is not 0 */
        PyObject *zero = PyFloat_FromDouble(0.0);
        PyObject *condition = zero ? ask_watcher(PyList_GET_ITEM(table, OP_ne), self, zero) : NULL;
        Py_XDECREF(zero);
        if (condition != Py_None) {
            int answer = condition ? PyObject_IsTrue(condition) : -1;
            Py_XDECREF(condition);
            return answer;
        }
        Py_DECREF(condition);
    }
    ((Node *)self)->flags |= COMPARED;
    return read_number((Node *)self) < 0 ? -1 : ((Node *)self)->data != 0.0;
}

static PyObject *value_float(PyObject *Py_UNUSED(self))
{
    if (refused("turns a Value into a float"))
        return NULL;
    PyErr_SetString(PyExc_TypeError,
                    "a Value does not turn into a float by itself, because its gradient would be lost: "
                    "use chainrule's functions (chainrule.exp(v) for math.exp(v)), or v.data for the bare number");
    return NULL;
}

/* Two Values are equal if they are the same node, since people keep Values in lists and sets. But a function that is
   transformed was written for numbers, and gets the answer that numbers would give. */
static PyObject *equal_values(PyObject *self, PyObject *other, int comparison)
{
    if (equality == NULL)
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *asked = Py_NewRef(equality), *answer = PyObject_CallFunctionObjArgs(asked, self, other, NULL);
    Py_DECREF(asked);
    if (answer == NULL)
        return NULL;
    int is_open = answer == Py_None, is_equal = answer == Py_True;
    Py_DECREF(answer);
    if (is_open)
        Py_RETURN_NOTIMPLEMENTED;
    return PyBool_FromLong(is_equal == (comparison == Py_EQ));
}

static PyObject *value_compare(PyObject *self, PyObject *other, int comparison)
{
    static const int rules[] = {[Py_LT] = OP_lt, [Py_LE] = OP_le, [Py_EQ] = OP_eq,
                                [Py_NE] = OP_ne, [Py_GT] = OP_gt, [Py_GE] = OP_ge};
    if (is_value(other) && (comparison == Py_EQ || comparison == Py_NE))
        return equal_values(self, other, comparison);
    if (watcher) {
        PyObject *condition = ask_watcher(PyList_GET_ITEM(table, rules[comparison]), self, other);
        if (condition != Py_None)
            return condition;
        Py_DECREF(condition);
    }
    double left = ((Node *)self)->data, right = 0.0;
    ((Node *)self)->flags |= COMPARED;
    if (is_value(other))
        ((Node *)other)->flags |= COMPARED;
    if (PyLong_Check(other) && (comparison == Py_EQ || comparison == Py_NE)) { /* exact, and of any size */
        PyObject *number = read_number((Node *)self) < 0 ? NULL : PyFloat_FromDouble(left);
        PyObject *answer = number ? PyFloat_Type.tp_richcompare(number, other, comparison) : NULL;
        Py_XDECREF(number);
        return answer;
    }
    if (!is_value(other) && to_double(other, "data", &right) < 0)
        return no_number();
    if (read_number((Node *)self) < 0 || (is_value(other) && read_number((Node *)other) < 0))
        return NULL;
    if (is_value(other))
        right = ((Node *)other)->data;
    Py_RETURN_RICHCOMPARE(left, right, comparison);
}
