/* The life of a node that Python sees: made by a call of Value, and freed. */

/* `Value(data, _children=(), _op='', label='')`. */

static PyObject *value_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(names))
{
    if (type == ValueType)
        return (PyObject *)new_node(0.0, NO_RULE, 0);
    Node *node = (Node *)type->tp_alloc(type, 0); /* its slots may hold anything, so it is tracked from birth */
    if (node) {
        node->op = NO_RULE;
        node->flags = TRACKED | COUNTED;
        tracked_nodes++;
        node->serial = next_serial++;
    }
    return (PyObject *)node;
}

typedef struct { /* what a node lets go of; dropped when the node is whole again, because Python code may run then */
    Node *few[INLINE_OPERANDS], **many;
    uint32_t count;
    Extra *extra;
} Remains;

static Remains detach(Node *node)
{
    Remains remains = {.many = NULL, .count = node->count, .extra = extra_of(node)};
    if (node->count > INLINE_OPERANDS)
        remains.many = operands_of(node);
    else
        memcpy(remains.few, operands_of(node), sizeof remains.few);
    node->op = NO_RULE;
    node->count = 0;
    node->flags &= (uint16_t)~APART;
    return remains;
}

static void drop_extra(Extra *extra)
{
    if (extra) {
        Py_XDECREF(extra->label);
        Py_XDECREF(extra->tag);
        Py_XDECREF(extra->closure);
        Py_XDECREF(extra->rule);
        PyMem_Free(extra);
    }
}

static void drop(Remains remains)
{
    Node **operands = remains.many ? remains.many : remains.few;
    for (uint32_t k = 0; k < remains.count; k++)
        Py_XDECREF(operands[k]);
    PyMem_Free(remains.many);
    drop_extra(remains.extra);
}

static int check_children(PyObject *children)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(children); k++) {
        PyObject *child = PyTuple_GET_ITEM(children, k);
        if (!is_value(child)) {
            PyErr_Format(PyExc_TypeError, "`_children` must be Values, got %s: wrap numbers in Value(...)",
                         Py_TYPE(child)->tp_name);
            return -1;
        }
    }
    return 0;
}

static int check_text(PyObject *text, const char *argument)
{
    if (text && PyUnicode_Check(text))
        return 0;
    PyErr_Format(PyExc_TypeError, "`%s` must be a string, got %s", argument,
                 text ? Py_TYPE(text)->tp_name : "nothing");
    return -1;
}

static int set_text(Node *node, PyObject *text, const char *argument, size_t field)
{
    if (check_text(text, argument) < 0 || with_extra(node) == NULL)
        return -1;
    PyObject *plain = PyUnicode_FromObject(text); /* of a subclass, the text alone: an instance could refer to the node */
    if (plain == NULL)
        return -1;
    Py_XSETREF(*(PyObject **)((char *)extra_of(node) + field), plain);
    return 0;
}

/* The first of the children are a node's operands from here on. What it had before, maybe from a first __init__, is to be
   dropped when it is complete. */
static inline int take_operands(Node *node, PyObject *children, Py_ssize_t count, Remains *before)
{
    if (check_children(children) < 0 || too_many(count))
        return -1;
    Node **many = count > INLINE_OPERANDS ? PyMem_New(Node *, count) : NULL;
    if (count > INLINE_OPERANDS && many == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *before = detach(node);
    if (many)
        keep_apart(node, many, NULL);
    node->count = (uint32_t)count;
    for (Py_ssize_t k = 0; k < count; k++) {
        Node *child = (Node *)Py_NewRef(PyTuple_GET_ITEM(children, k));
        operands_of(node)[k] = child;
        if (child->flags & TRACKED)
            track(node);
    }
    return 0;
}

static int value_init(PyObject *self, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"data", "_children", "_op", "label", NULL};
    Node *node = (Node *)self;
    PyObject *number, *children = NULL, *tag = NULL, *label = NULL;
    double data;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|OOO:Value", keywords, &number, &children, &tag, &label) ||
        to_double(number, "data", &data) < 0)
        return -1;
    if ((tag && check_text(tag, "_op") < 0) || (label && check_text(label, "label") < 0))
        return -1;
    children = children ? PySequence_Tuple(children) : PyTuple_New(0);
    if (children == NULL)
        return -1;
    int forgetful = PyTuple_GET_SIZE(children) && forgets();
    Py_ssize_t count = forgetful ? 0 : PyTuple_GET_SIZE(children);
    Remains remains;
    if (take_operands(node, children, count, &remains) < 0) {
        Py_DECREF(children);
        return -1;
    }
    int flags = 0;
    for (Py_ssize_t k = 0; k < count; k++)
        flags |= operands_of(node)[k]->flags;
    replace_number(node, data);
    node->grad = 0.0;
    node->flags &= (uint16_t)~(CONSTANT | FROZEN | READ | FOLLOWS_READ | COMPARED | WRITTEN);
    inherit(node, flags);
    if (forgetful)
        node->flags |= FROZEN;
    node->serial = next_serial++;
    int failed = (tag && PyUnicode_GET_LENGTH(tag) && set_text(node, tag, "_op", offsetof(Extra, tag)) < 0) ||
                 (label && PyUnicode_GET_LENGTH(label) && set_text(node, label, "label", offsetof(Extra, label)) < 0);
    drop(remains);
    Py_DECREF(children);
    return failed || (count && node_observer && objected(node)) ? -1 : 0;
}

/* Freeing never recurses: the dead wait in a list, and a long chain is no deep recursion.

   Mere nodes are freed in one go, in which no Python code runs and no other thread. What may run Python code, by a
   finalizer or the callback of a weak reference, is done afterwards: attributes, closures, operands of a subclass. Such
   code may wait for another thread, fork or train a network; nodes that die meanwhile are freed all the same. Beyond
   some depth of finalizers that free what has finalizers, the nodes that have them wait for those before. */

enum { MOST_NESTED = 50 };

static Node *dead, *dead_with_code;

static inline void lay_down(Node *node) /* among the dead; the collector does not know it any more */
{
    if (node->flags & TRACKED)
        tracked_nodes--;
    node->next_dead = dead;
    dead = node;
}

static inline int let_go(Node *operand) /* by the one node that holds it, unless Python code may run then */
{
    if (!Py_IS_TYPE(operand, ValueType) || operand->weak_references)
        return 0;
    if (operand->flags & TRACKED)
        PyObject_GC_UnTrack(operand);
#ifdef Py_REF_DEBUG
    Py_DECREF(operand);
#else
    Py_SET_REFCNT(operand, 0); /* its death without the ceremony of a call: most nodes die like that */
    lay_down(operand);
#endif
    return 1;
}

static void release_all(Node *node) /* what it holds may run Python code, but nobody can reach the node any more */
{
    Node **operands = operands_of(node);
    for (uint32_t k = 0; k < node->count; k++)
        Py_XDECREF(operands[k]);
    if (node->count > INLINE_OPERANDS)
        PyMem_Free(operands);
    Py_XDECREF(node->attributes);
    drop_extra(extra_of(node));
    release(node);
}

static void free_without_code(void)
{
    Node *node;
    while ((node = dead) != NULL) {
        dead = node->next_dead;
        Extra *extra = extra_of(node);
        int may_run_code = node->attributes || (extra && (extra->closure || extra->rule));
        Node **operands = operands_of(node);
        for (uint32_t k = 0; k < node->count; k++) {
            Node *operand = operands[k];
            if (operand == NULL)
                continue;
            if (Py_REFCNT(operand) > 1)
                Py_DECREF(operand);
            else if (!let_go(operand)) {
                may_run_code = 1;
                continue;
            }
            operands[k] = NULL;
        }
        if (may_run_code) {
            node->next_dead = dead_with_code;
            dead_with_code = node;
            continue;
        }
        if (node->count > INLINE_OPERANDS)
            PyMem_Free(operands);
        drop_extra(extra);
        release(node);
    }
}

static void free_with_code(void)
{
    static PER_THREAD int depth;
    Node *node;
    if (depth == MOST_NESTED)
        return;
    depth++;
    while ((node = dead_with_code) != NULL) {
        dead_with_code = node->next_dead;
        release_all(node);
    }
    depth--;
}

static void value_dealloc(PyObject *self)
{
    static int freeing;
    Node *node = (Node *)self;
    PyObject_GC_UnTrack(self); /* whatever the flag says: a change of __class__ may have tracked it */
    if (node->weak_references)
        PyObject_ClearWeakRefs(self);
    lay_down(node);
    if (freeing)
        return;
    freeing = 1;
    free_without_code();
    freeing = 0;
    if (dead_with_code)
        free_with_code();
}

static int value_traverse(PyObject *self, visitproc visit, void *arg)
{
    Node *node = (Node *)self;
    Extra *extra = extra_of(node);
    Py_VISIT(Py_TYPE(self));
    for (uint32_t k = 0; k < node->count; k++)
        Py_VISIT(operands_of(node)[k]);
    Py_VISIT(node->attributes);
    if (extra) {
        Py_VISIT(extra->closure);
        Py_VISIT(extra->rule);
    }
    return 0;
}

static int value_clear(PyObject *self) /* operands form no cycle; what a user hung on the node may */
{
    Node *node = (Node *)self;
    if (extra_of(node))
        Py_CLEAR(extra_of(node)->closure);
    Py_CLEAR(node->attributes);
    return 0;
}
