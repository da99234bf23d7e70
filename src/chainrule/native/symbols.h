/* Symbols, the numbers that a function is traced on (compiler/trace/symbols.py), as far as time counts: what they hold, how
   operators make them, and how a graph of them and of Values is laid out flat. */

typedef struct {
    PyObject_HEAD
    PyObject *rule, *operands; /* a row of the op table or None, and a tuple */
    PyObject *is_value;        /* whether it would be a Value, None if that is not known yet */
    uint64_t serial;
    Py_ssize_t place; /* among the arguments, if it is one */
} Symbol;

static PyTypeObject *SymbolBase; /* what is here */
static PyTypeObject *SymbolType; /* the class made of it in Python, which operators make instances of */
static PyObject *constant_type;  /* the class of plain numbers that meet one */
static PyObject *operands_name, *serial_name, *rule_name, *self_name; /* names of attributes of nodes */

static inline int is_symbol(PyObject *object)
{
    return Py_IS_TYPE(object, SymbolType) || PyType_IsSubtype(Py_TYPE(object), SymbolBase);
}

static PyObject *new_symbol(PyTypeObject *type, PyObject *rule, PyObject *operands, Py_ssize_t place)
{
    Symbol *symbol = (Symbol *)type->tp_alloc(type, 0);
    if (symbol == NULL)
        return NULL;
    symbol->rule = Py_NewRef(rule);
    symbol->operands = Py_NewRef(operands);
    symbol->is_value = Py_NewRef(Py_None);
    symbol->serial = next_serial++;
    symbol->place = place;
    return (PyObject *)symbol;
}

static PyObject *symbol_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"rule", "operands", "place", NULL};
    PyObject *rule, *operands;
    Py_ssize_t place = -1;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OO!|n:Symbol", names, &rule, &PyTuple_Type, &operands, &place))
        return NULL;
    return new_symbol(type, rule, operands, place);
}

static int symbol_traverse(PyObject *self, visitproc visit, void *arg)
{
    Symbol *symbol = (Symbol *)self;
    Py_VISIT(symbol->rule);
    Py_VISIT(symbol->operands);
    Py_VISIT(symbol->is_value);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int symbol_clear(PyObject *self)
{
    Symbol *symbol = (Symbol *)self;
    Py_CLEAR(symbol->rule);
    Py_CLEAR(symbol->operands);
    Py_CLEAR(symbol->is_value);
    return 0;
}

static void symbol_dealloc(PyObject *self) /* long chains: its tuple of operands limits how deep this goes */
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    symbol_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *symbol_serial(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(((Symbol *)self)->serial);
}

/* Plain numbers among the operands become constants, which are older than the symbol. */
static PyObject *symbol_of(PyObject *rule, PyObject *const *operands, Py_ssize_t count)
{
    if (SymbolType == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "no class of symbols is known yet: import chainrule.compiler");
        return NULL;
    }
    PyObject *own = PyTuple_New(count);
    for (Py_ssize_t k = 0; own && k < count; k++) {
        int is_node = is_symbol(operands[k]) || is_value(operands[k]);
        PyObject *operand = is_node ? Py_NewRef(operands[k]) : PyObject_CallOneArg(constant_type, operands[k]);
        if (operand == NULL)
            Py_CLEAR(own);
        else
            PyTuple_SET_ITEM(own, k, operand);
    }
    PyObject *symbol = own ? new_symbol(SymbolType, rule, own, -1) : NULL;
    Py_XDECREF(own);
    return symbol;
}

static PyObject *symbol_apply(PyObject *Py_UNUSED(unused), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "the call should look like _apply(rule, operands), with a tuple of operands");
        return NULL;
    }
    return symbol_of(args[0], &PyTuple_GET_ITEM(args[1], 0), PyTuple_GET_SIZE(args[1]));
}

static PyObject *symbol_operate(int op, PyObject *left, PyObject *right)
{
    PyObject *operands[] = {left, right}, *symbol = symbol_of(PyList_GET_ITEM(table, op), operands, 2);
    return symbol ? symbol : no_number();
}

#define SYMBOL_OPERATOR(name)                                               \
    static PyObject *symbol_##name(PyObject *left, PyObject *right)         \
    {                                                                       \
        return symbol_operate(OP_##name, left, right);                      \
    }

SYMBOL_OPERATOR(add)
SYMBOL_OPERATOR(sub)
SYMBOL_OPERATOR(mul)
SYMBOL_OPERATOR(div)
SYMBOL_OPERATOR(mod)

static PyObject *symbol_power(PyObject *left, PyObject *right, PyObject *modulus)
{
    if (modulus != Py_None)
        Py_RETURN_NOTIMPLEMENTED;
    return symbol_operate(OP_pow, left, right);
}

static PyObject *symbol_negative(PyObject *self)
{
    return symbol_of(PyList_GET_ITEM(table, OP_neg), &self, 1);
}

static PyObject *symbol_absolute(PyObject *self)
{
    return symbol_of(PyList_GET_ITEM(table, OP_abs), &self, 1);
}

static PyMethodDef symbol_methods[] = {
    {"_apply", (PyCFunction)(void (*)(void))symbol_apply, METH_FASTCALL | METH_STATIC,
     PyDoc_STR("_apply(rule, operands, /)\n--\n\nThe node `rule(*operands)`; plain numbers among the operands become "
               "constants.")},
    {NULL, NULL, 0, NULL}};

static PyMemberDef symbol_members[] = {
    {"_rule", T_OBJECT, offsetof(Symbol, rule), READONLY, PyDoc_STR("The row of the op table that made it, or None.")},
    {"_operands", T_OBJECT, offsetof(Symbol, operands), READONLY, PyDoc_STR("The operands in order, with repeats.")},
    {"_is_value", T_OBJECT, offsetof(Symbol, is_value), 0, PyDoc_STR("Whether it would be a Value; None: unknown.")},
    {"place", T_PYSSIZET, offsetof(Symbol, place), READONLY, PyDoc_STR("Its place among the arguments, or -1.")},
    {NULL, 0, 0, 0, NULL}};

static PyGetSetDef symbol_attributes[] = {
    {"_serial", symbol_serial, NULL, PyDoc_STR("Counts creations."), NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot symbol_slots[] = {
    {Py_tp_doc, "Symbol(rule, operands, place=-1)\n--\n\nA number that is not known yet."},
    {Py_tp_new, CODE(symbol_new)},
    {Py_tp_dealloc, CODE(symbol_dealloc)},
    {Py_tp_traverse, CODE(symbol_traverse)},
    {Py_tp_clear, CODE(symbol_clear)},
    {Py_tp_methods, symbol_methods},
    {Py_tp_members, symbol_members},
    {Py_tp_getset, symbol_attributes},
    {Py_nb_add, CODE(symbol_add)},
    {Py_nb_subtract, CODE(symbol_sub)},
    {Py_nb_multiply, CODE(symbol_mul)},
    {Py_nb_true_divide, CODE(symbol_div)},
    {Py_nb_remainder, CODE(symbol_mod)},
    {Py_nb_power, CODE(symbol_power)},
    {Py_nb_negative, CODE(symbol_negative)},
    {Py_nb_positive, CODE(value_positive)},
    {Py_nb_absolute, CODE(symbol_absolute)},
    {0, NULL}};

static PyType_Spec symbol_spec = {
    .name = "chainrule._native.Symbol",
    .basicsize = sizeof(Symbol),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = symbol_slots,
};

/* Have operators make instances of a class, and of another for plain numbers. */
static PyObject *native_make_symbols(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *type, *constants;
    if (!PyArg_ParseTuple(args, "O!O:make_symbols", &PyType_Type, &type, &constants))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)type, SymbolBase)) {
        PyErr_SetString(PyExc_TypeError, "`kind` must be derived from Symbol");
        return NULL;
    }
    Py_INCREF(type);
    Py_XSETREF(SymbolType, (PyTypeObject *)type);
    Py_INCREF(constants);
    Py_XSETREF(constant_type, constants);
    Py_RETURN_NONE;
}

/* A graph of nodes of any class, laid out flat. */

typedef struct {
    PyObject *node; /* held */
    uint64_t serial;
} Met;

typedef struct {
    Met *met;
    size_t count, capacity;
    size_t *slots; /* of a hash table: a place in `met` and 1, or 0 */
    size_t mask;   /* how many slots there are, less 1: a power of two */
} Walk;

static size_t *slot_of(const Walk *walk, PyObject *node)
{
    uint64_t hash = (uint64_t)(uintptr_t)node * UINT64_C(0x9E3779B97F4A7C15);
    size_t at = (size_t)(hash >> 20) & walk->mask;
    while (walk->slots[at] && walk->met[walk->slots[at] - 1].node != node)
        at = (at + 1) & walk->mask;
    return walk->slots + at;
}

static int serial_of(PyObject *node, uint64_t *serial)
{
    if (is_value(node) || is_symbol(node)) {
        *serial = is_value(node) ? ((Node *)node)->serial : ((Symbol *)node)->serial;
        return 0;
    }
    PyObject *number = PyObject_GetAttr(node, serial_name);
    *serial = number ? PyLong_AsUnsignedLongLong(number) : 0;
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

static int enlarge(Walk *walk)
{
    size_t capacity = walk->capacity ? 2 * walk->capacity : 1024;
    Met *met = PyMem_Resize(walk->met, Met, capacity);
    if (met)
        walk->met = met;
    size_t *slots = met ? PyMem_Calloc(2 * capacity, sizeof(size_t)) : NULL;
    if (slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyMem_Free(walk->slots);
    walk->slots = slots;
    walk->capacity = capacity;
    walk->mask = 2 * capacity - 1;
    for (size_t k = 0; k < walk->count; k++)
        *slot_of(walk, met[k].node) = k + 1;
    return 0;
}

static int meet_node(Walk *walk, PyObject *node)
{
    if (walk->count == walk->capacity && enlarge(walk) < 0)
        return -1;
    size_t *slot = slot_of(walk, node);
    uint64_t serial;
    if (*slot)
        return 0;
    if (serial_of(node, &serial) < 0)
        return -1;
    slot = slot_of(walk, node); /* the attribute may have run Python code */
    walk->met[walk->count++] = (Met){Py_NewRef(node), serial};
    *slot = walk->count;
    return 0;
}

static PyObject *operands_in_order(const Met *met, uint64_t since) /* a tuple of nodes */
{
    PyObject *node = met->node;
    if (met->serial <= since)
        return PyTuple_New(0);
    if (is_symbol(node))
        return Py_NewRef(((Symbol *)node)->operands);
    PyObject *operands = is_value(node) ? get_operands(node, NULL) : PyObject_GetAttr(node, operands_name);
    PyObject *found = operands ? PySequence_Tuple(operands) : NULL;
    Py_XDECREF(operands);
    return found;
}

static PyObject *rule_of(const Met *met, uint64_t since) /* None if it is not what passes gradients on */
{
    PyObject *node = met->node;
    if (met->serial <= since || (is_value(node) && (closure_of((Node *)node) || overrides_backward((Node *)node))))
        Py_RETURN_NONE;
    if (is_value(node))
        return get_rule(node, NULL);
    if (is_symbol(node))
        return Py_NewRef(((Symbol *)node)->rule);
    PyObject *rule = PyObject_GetAttr(node, rule_name);
    if (rule == NULL || rule == Py_None)
        return rule;
    PyObject *backward = PyObject_GetAttr(node, backward_name), *self = NULL;
    if (backward && (self = PyObject_GetAttr(backward, self_name)) == NULL && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    if (self != node)
        Py_CLEAR(rule);
    Py_XDECREF(backward);
    Py_XDECREF(self);
    return rule || PyErr_Occurred() ? rule : Py_NewRef(Py_None);
}

static int met_older_first(const void *a, const void *b)
{
    uint64_t left = ((const Met *)a)->serial, right = ((const Met *)b)->serial;
    return (left > right) - (left < right);
}

/* All nodes below the roots, the oldest first. */
static int walk_below(Walk *walk, PyObject *roots, uint64_t since)
{
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(roots); k++)
        if (meet_node(walk, PyList_GET_ITEM(roots, k)) < 0)
            return -1;
    for (size_t done = 0; done < walk->count; done++) {
        PyObject *operands = operands_in_order(walk->met + done, since);
        int failed = operands == NULL;
        for (Py_ssize_t k = 0; !failed && k < PyTuple_GET_SIZE(operands); k++)
            failed = meet_node(walk, PyTuple_GET_ITEM(operands, k)) < 0;
        Py_XDECREF(operands);
        if (failed)
            return -1;
    }
    if (walk->count == 0)
        return 0;
    qsort(walk->met, walk->count, sizeof(Met), met_older_first);
    memset(walk->slots, 0, (walk->mask + 1) * sizeof(size_t));
    for (size_t k = 0; k < walk->count; k++)
        *slot_of(walk, walk->met[k].node) = k + 1;
    return 0;
}

static PyObject *places_of(const Walk *walk, PyObject *operands, PyObject *numbers) /* a tuple; the numbers are 0, 1, 2 … */
{
    PyObject *places = PyTuple_New(PyTuple_GET_SIZE(operands));
    for (Py_ssize_t k = 0; places && k < PyTuple_GET_SIZE(operands); k++) {
        size_t place = *slot_of(walk, PyTuple_GET_ITEM(operands, k));
        if (place == 0) {
            PyErr_SetString(PyExc_RuntimeError, "a node had other operands before");
            Py_CLEAR(places);
        }
        else
            PyTuple_SET_ITEM(places, k, Py_NewRef(PyList_GET_ITEM(numbers, place - 1)));
    }
    return places;
}

static PyObject *trace_any(PyObject *roots, uint64_t since)
{
    Walk walk = {NULL, 0, 0, NULL, 0};
    PyObject *nodes = NULL, *rules = NULL, *operands = NULL, *numbers = NULL, *result = NULL;
    if (walk_below(&walk, roots, since) < 0)
        goto end;
    Py_ssize_t count = (Py_ssize_t)walk.count;
    nodes = PyList_New(count);
    rules = PyList_New(count);
    operands = PyList_New(count);
    numbers = PyList_New(count);
    if (nodes == NULL || rules == NULL || operands == NULL || numbers == NULL)
        goto end;
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *number = PyLong_FromSsize_t(k);
        if (number == NULL)
            goto end;
        PyList_SET_ITEM(numbers, k, number);
        PyList_SET_ITEM(nodes, k, Py_NewRef(walk.met[k].node));
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *given = operands_in_order(walk.met + k, since);
        PyObject *places = given ? places_of(&walk, given, numbers) : NULL;
        PyObject *rule = places ? rule_of(walk.met + k, since) : NULL;
        Py_XDECREF(given);
        if (rule == NULL) {
            Py_XDECREF(places);
            goto end;
        }
        PyList_SET_ITEM(operands, k, places);
        PyList_SET_ITEM(rules, k, rule);
    }
    result = PyTuple_Pack(3, nodes, rules, operands);
end:
    for (size_t k = 0; k < walk.count; k++)
        Py_DECREF(walk.met[k].node);
    PyMem_Free(walk.met);
    PyMem_Free(walk.slots);
    Py_XDECREF(nodes);
    Py_XDECREF(rules);
    Py_XDECREF(operands);
    Py_XDECREF(numbers);
    return result;
}
