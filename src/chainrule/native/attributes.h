/* What a Value shows. */

static PyObject *value_repr(PyObject *self)
{
    Node *node = (Node *)self;
    PyObject *data = PyFloat_FromDouble(node->data), *grad = PyFloat_FromDouble(node->grad), *text = NULL;
    PyObject *label = extra_of(node) ? extra_of(node)->label : NULL;
    if (data && grad && label && PyUnicode_GET_LENGTH(label))
        text = PyUnicode_FromFormat("Value(data=%R, grad=%R, label=%R)", data, grad, label);
    else if (data && grad)
        text = PyUnicode_FromFormat("Value(data=%R, grad=%R)", data, grad);
    Py_XDECREF(data);
    Py_XDECREF(grad);
    return text;
}

static PyObject *value_format(PyObject *self, PyObject *spec)
{
    if (PyUnicode_Check(spec) && PyUnicode_GET_LENGTH(spec) == 0)
        return PyObject_Repr(self);
    PyObject *data = PyFloat_FromDouble(((Node *)self)->data);
    PyObject *text = data ? PyObject_Format(data, spec) : NULL;
    Py_XDECREF(data);
    return text;
}

static PyObject *get_data(PyObject *self, void *Py_UNUSED(unused))
{
    Node *node = (Node *)self;
    if (!(node->flags & CONSTANT) && refused("reads `.data` of a Value"))
        return NULL;
    return read_number(node) < 0 ? NULL : PyFloat_FromDouble(node->data);
}

static PyObject *get_data_unread(PyObject *self, void *Py_UNUSED(unused))
{
    return PyFloat_FromDouble(((Node *)self)->data);
}

static PyObject *get_grad(PyObject *self, void *Py_UNUSED(unused))
{
    return refused("reads `.grad` of a Value") ? NULL : PyFloat_FromDouble(((Node *)self)->grad);
}

static int cannot_delete(PyObject *given, const char *attribute)
{
    if (given == NULL)
        PyErr_Format(PyExc_AttributeError, "`%s` cannot be deleted", attribute);
    return given == NULL;
}

static int set_data(PyObject *self, PyObject *number, void *Py_UNUSED(unused))
{
    double data;
    if (refused("sets `.data` of a Value") || cannot_delete(number, "data") || to_double(number, "data", &data) < 0)
        return -1;
    write_number((Node *)self, data);
    return 0;
}

static int set_grad(PyObject *self, PyObject *number, void *Py_UNUSED(unused))
{
    if (refused("sets `.grad` of a Value") || cannot_delete(number, "grad"))
        return -1;
    return to_double(number, "grad", &((Node *)self)->grad);
}

static PyObject *get_label(PyObject *self, void *Py_UNUSED(unused))
{
    Extra *extra = extra_of((Node *)self);
    return extra && extra->label ? Py_NewRef(extra->label) : PyUnicode_FromString("");
}

static int set_label(PyObject *self, PyObject *text, void *Py_UNUSED(unused))
{
    return set_text((Node *)self, text, "label", offsetof(Extra, label));
}

static PyObject *get_rule(PyObject *self, void *Py_UNUSED(unused))
{
    Node *node = (Node *)self;
    if (node->op == NO_RULE)
        Py_RETURN_NONE;
    return node->op == USER_RULE ? user_rule_of(node) : Py_NewRef(PyList_GET_ITEM(table, node->op));
}

static PyObject *get_op(PyObject *self, void *Py_UNUSED(unused))
{
    Node *node = (Node *)self;
    if (extra_of(node) && extra_of(node)->tag)
        return Py_NewRef(extra_of(node)->tag);
    if (node->op == NO_RULE)
        return PyUnicode_FromString("");
    PyObject *rule = get_rule(self, NULL), *symbol = rule ? PyObject_GetAttrString(rule, "symbol") : NULL;
    Py_XDECREF(rule);
    return symbol;
}

static int set_op(PyObject *self, PyObject *text, void *Py_UNUSED(unused))
{
    return set_text((Node *)self, text, "_op", offsetof(Extra, tag));
}

static PyObject *get_operands(PyObject *self, void *Py_UNUSED(unused))
{
    Node *node = (Node *)self;
    PyObject *operands = PyTuple_New(node->count);
    for (uint32_t k = 0; operands && k < node->count; k++)
        PyTuple_SET_ITEM(operands, k, Py_NewRef(operands_of(node)[k]));
    return operands;
}

static PyObject *get_prev(PyObject *self, void *Py_UNUSED(unused))
{
    PyObject *operands = get_operands(self, NULL);
    PyObject *set = operands ? PyFrozenSet_New(operands) : NULL;
    Py_XDECREF(operands);
    return set;
}

static PyObject *get_backward(PyObject *self, void *Py_UNUSED(unused))
{
    PyObject *closure = closure_of((Node *)self);
    return closure ? Py_NewRef(closure) : PyObject_GetAttrString(self, "_push");
}

/* A closure or an attribute that is assigned late may hold nodes that were made of this one meanwhile. These are not
   tracked, and the collector would not see that the circle is closed. So look what it holds, or what it holds does,
   nearest first, and track all nodes from there down to this one. */
enum { NEARBY = 1024 };

typedef struct {
    PyObject *near[NEARBY];
    int count;
    Pending nodes;
    uint64_t oldest;
} Search;

static int meet(PyObject *object, void *at)
{
    Search *search = at;
    if (object == NULL)
        return 0;
    if (is_value(object))
        return ((Node *)object)->serial > search->oldest ? add_unseen(&search->nodes, (Node *)object) : 0;
    if (search->count < NEARBY && PyObject_IS_GC(object) && !PyModule_Check(object) && !PyType_Check(object))
        search->near[search->count++] = object;
    return 0;
}

static int meet_held(PyObject *object, Search *search)
{
    if (!PyFunction_Check(object))
        return Py_TYPE(object)->tp_traverse(object, meet, search);
    PyFunctionObject *function = (PyFunctionObject *)object; /* its globals are left out: they hold everything */
    return meet(function->func_closure, search) || meet(function->func_defaults, search) ||
           meet(function->func_kwdefaults, search) || meet(function->func_dict, search);
}

static int track_made_since(const Node *node, PyObject *held)
{
    Search search; /* most of it is filled as needed */
    search.count = 0;
    search.nodes = (Pending){NULL, 0, 0};
    search.oldest = node->serial;
    Pending *nodes = &search.nodes;
    int failed = meet(held, &search);
    for (int k = 0; k < search.count && !failed; k++)
        failed = meet_held(search.near[k], &search);
    for (size_t done = 0; done < nodes->count && !failed; done++)
        for (uint32_t k = 0; k < nodes->nodes[done]->count && !failed; k++)
            failed = meet((PyObject *)operands_of(nodes->nodes[done])[k], &search);
    unmark(nodes);
    for (size_t k = 0; k < nodes->count; k++)
        track(nodes->nodes[k]);
    PyMem_Free(nodes->nodes);
    return failed ? -1 : 0;
}

static int let_hold(Node *node, PyObject *held) /* before something is hung on it that may refer to it */
{
    if (node->serial + 1 != next_serial && track_made_since(node, held) < 0)
        return -1;
    track(node);
    return 0;
}

static int set_backward(PyObject *self, PyObject *closure, void *Py_UNUSED(unused))
{
    Node *node = (Node *)self;
    if (closure == NULL || !PyCallable_Check(closure)) {
        PyErr_Format(PyExc_TypeError, "`_backward` must be callable without arguments, got %s",
                     closure ? Py_TYPE(closure)->tp_name : "nothing");
        return -1;
    }
    if (!takes_gradient(node))
        return 0; /* made inside no_grad(): it has nothing to pass on */
    if (with_extra(node) == NULL || let_hold(node, closure) < 0)
        return -1;
    Py_INCREF(closure);
    Py_XSETREF(extra_of(node)->closure, closure);
    return 0;
}

/* Attributes of the user's own. A node whose attributes are numbers and texts closes no circle and stays untracked. */

static int value_setattr(PyObject *self, PyObject *name, PyObject *value)
{
    if (value && PyType_IS_GC(Py_TYPE(value))) {
        PyObject *known = PyUnicode_Check(name) ? _PyType_Lookup(Py_TYPE(self), name) : NULL;
        int has_setter = known && Py_TYPE(known)->tp_descr_set;
        if (!has_setter && let_hold((Node *)self, value) < 0)
            return -1;
    }
    return PyObject_GenericSetAttr(self, name, value);
}

static PyObject *get_attributes(PyObject *self, void *Py_UNUSED(unused))
{
    track((Node *)self); /* whoever has the dictionary can put anything into it */
    return PyObject_GenericGetDict(self, NULL);
}

static int set_attributes(PyObject *self, PyObject *attributes, void *Py_UNUSED(unused))
{
    if (attributes && let_hold((Node *)self, attributes) < 0)
        return -1;
    return PyObject_GenericSetDict(self, attributes, NULL);
}

static PyObject *get_serial(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(((Node *)self)->serial);
}

static PyObject *get_constant(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((Node *)self)->flags & CONSTANT);
}

/* Copies and pickles. A computed node stands for its graph: `core/walk.py` walks it, and has each node copied here. */

static PyObject *value_reduce(PyObject *self, PyObject *Py_UNUSED(unused))
{
    Node *node = (Node *)self;
    if (node->count || closure_of(node)) {
        PyErr_SetString(PyExc_TypeError, "a Value that was computed cannot be pickled or copied by itself, because it "
                                         "stands for its graph: use copy.deepcopy, or take its .data");
        return NULL;
    }
    if (refused("copies a Value"))
        return NULL;
    PyObject *copyreg = PyImport_ImportModule("copyreg");
    PyObject *new = copyreg ? PyObject_GetAttrString(copyreg, "__newobj__") : NULL;
    PyObject *attributes = new ? PyObject_CallMethod((PyObject *)&PyBaseObject_Type, "__getstate__", "O", self) : NULL;
    PyObject *label = attributes ? get_label(self, NULL) : NULL, *result = NULL;
    if (label)
        result = Py_BuildValue("O(O)(ddOOi)", new, Py_TYPE(self), node->data, node->grad, label, attributes,
                               takes_gradient(node));
    Py_XDECREF(copyreg);
    Py_XDECREF(new);
    Py_XDECREF(attributes);
    Py_XDECREF(label);
    return result;
}

static PyObject *value_setstate(PyObject *self, PyObject *state)
{
    Node *node = (Node *)self;
    PyObject *label, *attributes;
    double data, grad;
    int takes_gradient;
    if (!PyTuple_Check(state))
        return PyErr_Format(PyExc_TypeError, "the state of a Value is a tuple, got %s", Py_TYPE(state)->tp_name);
    if (!PyArg_ParseTuple(state, "ddOOi:__setstate__", &data, &grad, &label, &attributes, &takes_gradient) ||
        check_text(label, "label") < 0 ||
        (PyUnicode_GET_LENGTH(label) && set_text(node, label, "label", offsetof(Extra, label)) < 0))
        return NULL;
    replace_number(node, data);
    node->grad = grad;
    set_frozen(node, !takes_gradient);
    return PyObject_CallFunctionObjArgs(hang, self, attributes, NULL);
}

static PyObject *value_copy_to(PyObject *self, PyObject *args)
{
    enum { OF_ITS_PLACE = VISITED | TRACKED | COUNTED | APART | READ | COMPARED | WRITTEN }; /* nobody has read the copy */
    Node *node = (Node *)self, *twin;
    PyObject *operands;
    if (!PyArg_ParseTuple(args, "O!O!:_copy_to", ValueType, &twin, &PyTuple_Type, &operands) ||
        refused("copies a Value"))
        return NULL;
    if (closure_of(node)) {
        PyErr_SetString(PyExc_TypeError, "a Value with a `_backward` of its own cannot be copied, because that function "
                                         "would go on with the Values it knows: build the graph again from copied leaves");
        return NULL;
    }
    if (PyTuple_GET_SIZE(operands) != node->count)
        return PyErr_Format(PyExc_TypeError, "the node has %u operands, got %zd", node->count, PyTuple_GET_SIZE(operands));
    Remains remains;
    if (take_operands(twin, operands, node->count, &remains) < 0)
        return NULL;
    Extra *extra = extra_of(node), *copied = extra ? with_extra(twin) : NULL;
    if (copied) {
        copied->label = Py_XNewRef(extra->label);
        copied->tag = Py_XNewRef(extra->tag);
        copied->rule = Py_XNewRef(extra->rule);
        copied->silent = extra->silent;
        if (copied->rule)
            track(twin); /* a user's rule can refer to anything */
    }
    if (copied || !extra) {
        twin->op = node->op;
        twin->data = node->data;
        twin->grad = node->grad;
        twin->serial = next_serial++;
        twin->flags = (uint16_t)((twin->flags & OF_ITS_PLACE) | (node->flags & ~OF_ITS_PLACE));
    }
    drop(remains);
    if (extra && !copied)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *get_requires_grad(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(takes_gradient((Node *)self));
}

static int set_requires_grad(PyObject *self, PyObject *wanted, void *Py_UNUSED(unused))
{
    Node *node = (Node *)self;
    if (cannot_delete(wanted, "requires_grad"))
        return -1;
    if (!PyBool_Check(wanted)) {
        PyErr_Format(PyExc_TypeError, "`requires_grad` must be True or False, got %R: write one of them, or bool(...)", wanted);
        return -1;
    }
    if (passes_on(node) || node->flags & CONSTANT) {
        PyErr_Format(PyExc_ValueError, "`requires_grad` is set on leaves, and %R is none: use detach() to cut it off",
                     self);
        return -1;
    }
    set_frozen(node, wanted == Py_False);
    return 0;
}

static PyObject *get_read(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((Node *)self)->flags & READ);
}

static PyObject *get_compared(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((Node *)self)->flags & COMPARED);
}

static PyObject *get_read_during(PyObject *self, void *Py_UNUSED(unused))
{
    Node *node = (Node *)self;
    While found[3];
    int count = 0;
    Extra *extra = node->count ? NULL : extra_of(node);
    if (extra && extra->earlier.end)
        found[count++] = extra->earlier;
    if (extra && extra->latest.end)
        found[count++] = extra->latest;
    if (node->flags & READ && node->count == 0)
        found[count++] = (While){*read_at(node), next_serial};
    PyObject *pairs = PyTuple_New(count);
    for (int k = 0; pairs && k < count; k++) {
        PyObject *pair = Py_BuildValue("KK", (unsigned long long)found[k].first, (unsigned long long)found[k].end);
        if (pair == NULL)
            Py_CLEAR(pairs);
        else
            PyTuple_SET_ITEM(pairs, k, pair);
    }
    return pairs;
}

static PyObject *get_follows_read(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((Node *)self)->flags & FOLLOWS_READ);
}
