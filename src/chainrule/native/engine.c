/* Value in C: the class of engine.py again, where a node costs about what a Python float costs.

   What an op computes comes from the op table: `ops.h` is generated from it at build time. This file
   knows nodes: how they are made, walked and freed.

   - Operands are references from a node to older nodes, so the graph has no cycles and reference counting
     frees it. Only what a user hangs on a node can close one, a closure or an attribute: nodes are untracked by
     the garbage collector until such a thing, or an operand that is tracked, hangs on them.
   - Building, walking and freeing never recurse: a chain of a million nodes is nothing special.
   - Every node has a serial number, younger than its operands'. Newest first is a reverse topological order. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NO_RULE = UINT16_MAX, USER_RULE = UINT16_MAX - 1 };    /* beside the table's codes: Node.op */
enum { CONSTANT = 1, VISITED = 2, TRACKED = 4, COUNTED = 8, READ = 16, FROZEN = 32, FOLLOWS_READ = 64 }; /* Node.flags */
enum { COMPARED = 128, WRITTEN = 256 }; /* Node.flags: by `<` and its kin or `if`; by an assignment to `.data` */
enum { APART = 1 << 15 }; /* Node.flags: the operands, or what few nodes have, are not in the node itself */
enum { INLINE_OPERANDS = 2 };

#ifdef _MSC_VER
#define PER_THREAD __declspec(thread)
#else
#define PER_THREAD _Thread_local
#endif

typedef struct { /* what few nodes have, and their operands if they are few: the pointer to it takes their place */
    PyObject *label, *tag, *closure, *rule;
    struct Node *operands[INLINE_OPERANDS];
} Extra;

typedef struct Node {
    PyObject_HEAD
    double data;
    union {
        double grad;
        struct Node *next_dead; /* while it waits to be freed */
    };
    uint64_t serial;
    uint16_t op;
    uint16_t flags;
    uint32_t count; /* of operands */
    union {
        struct Node *few[INLINE_OPERANDS];
        struct {
            struct Node **many;
            Extra *extra; /* or NULL */
        } apart;
    } operands;
    PyObject *attributes; /* `__dict__`, or NULL */
    PyObject *weak_references;
} Node;

static PyTypeObject *ValueType;
static uint64_t next_serial;
static PyObject *table;     /* the rows of the op table, by code */
static PyObject *as_float;  /* ops.as_float, for numbers that are neither float nor int */
static PyObject *hang;      /* _copies.hang, which gives a copy its attributes */
static PyObject *op_type, *call_in_python; /* ops.Op, and its __call__ as ops.py has it */
static PyObject *code_name; /* "code", the attribute of a row that says its place in the table */
static PyObject *backward_name; /* "_backward" */
static PyObject *watcher;   /* while a function is traced: told of every look at a number; else NULL */
static PyObject *equality;  /* while a function is transformed: asked whether two Values are equal; else NULL */
static int threads_without_graph; /* inside no_grad() */

static PER_THREAD int without_graph;      /* this thread is one of them */

static inline int forgets(void) /* whether an op gives a mere number; asks the thread only if some thread does */
{
    return threads_without_graph && without_graph;
}
static PyObject *node_observer, *pass_observer; /* told of every node that is made, of every backward pass; else NULL */

static inline Node **operands_of(Node *node)
{
    return node->flags & APART ? node->operands.apart.many : node->operands.few;
}

static inline Extra *extra_of(const Node *node) /* or NULL */
{
    return node->flags & APART ? node->operands.apart.extra : NULL;
}

static inline int takes_gradient(const Node *node)
{
    return !(node->flags & (CONSTANT | FROZEN));
}

static inline int is_value(PyObject *object)
{
    return Py_IS_TYPE(object, ValueType) || PyType_IsSubtype(Py_TYPE(object), ValueType);
}

static PyObject *apply_method(int op, PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
static inline PyObject *unary(int op, double data, PyObject *operand);

/* A method for each op: the unary ones, which most are, take a short way. */
#define UNARY_METHOD(name)                                                                                    \
    static PyObject *method_##name(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)  \
    {                                                                                                         \
        if (count == 0 && names == NULL)                                                                      \
            return unary(OP_##name, forward_##name(((Node *)self)->data), self);                              \
        return apply_method(OP_##name, self, args, count, names);                                             \
    }
#define METHOD(name)                                                                                          \
    static PyObject *method_##name(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)  \
    {                                                                                                         \
        return apply_method(OP_##name, self, args, count, names);                                             \
    }
#define OP_METHOD(as, name, doc) \
    {#as, (PyCFunction)(void (*)(void))method_##name, METH_FASTCALL | METH_KEYWORDS, PyDoc_STR(doc)},

#include "ops.h"

/* Making nodes. */

/* An object that the collector can track has a head of two words in front; zeros mean "not tracked". Nodes get
   theirs here rather than from PyObject_GC_New, which counts every allocation as a reason to collect: a million
   nodes without a cycle are no reason. While there are tracked nodes there can be cycles, and nodes count; and
   because a small cycle can hold a large untracked graph, which the collector does not see, a full collection
   runs for every 100 MB of nodes then. */
typedef struct {
    uintptr_t next, previous;
} CollectorHead;

#if defined(Py_GIL_DISABLED) || PY_VERSION_HEX >= 0x030E0000
enum { OWN_HEADS = 0 }; /* not known to be laid out like that: leave it to Python */
#else
enum { OWN_HEADS = 1 };
#endif

static size_t tracked_nodes;

static inline Node *allocate(void)
{
    if (tracked_nodes || !OWN_HEADS) {
        static uint32_t counted;
        if (++counted % (1 << 20) == 0)
            PyGC_Collect();
        Node *node = PyObject_GC_New(Node, ValueType);
        if (node)
            node->flags = COUNTED;
        return node;
    }
    CollectorHead *head = PyObject_Malloc(sizeof(CollectorHead) + sizeof(Node));
    if (head == NULL)
        return (Node *)PyErr_NoMemory();
    *head = (CollectorHead){0, 0};
    Node *node = (Node *)PyObject_Init((PyObject *)(head + 1), ValueType);
    node->flags = 0;
    return node;
}

/* A training step frees a graph and builds the same again. In between, Python would give the memory back to the
   system, one arena of 1 MB at a time, and taking it anew costs a fifth of the step. So in each of the first few
   arenas one dead node is kept, which holds the arena. */
enum { MOST_PINS = 16, ARENA_BITS = 20 };

static int becomes_pin(const Node *node)
{
    static uintptr_t arenas[MOST_PINS];
    static int pins;
    uintptr_t arena = (uintptr_t)node >> ARENA_BITS;
    for (int k = 0; k < pins; k++)
        if (arenas[k] == arena)
            return 0;
    if (pins == MOST_PINS)
        return 0;
    arenas[pins++] = arena;
    return 1;
}

static inline void release(Node *node)
{
    PyTypeObject *type = Py_TYPE(node);
    if (type != ValueType || node->flags & COUNTED)
        type->tp_free(node);
    else if (node->serial % 1024 || !becomes_pin(node))
        PyObject_Free((CollectorHead *)node - 1);
    Py_DECREF(type);
#ifdef PLANTED_USE_AFTER_FREE /* in one build of `make sanitize`, which must notice it */
    (void)((volatile Node *)node)->serial;
#endif
}

static inline void keep_apart(Node *node, Node **operands, Extra *extra)
{
    node->operands.apart.many = operands;
    node->operands.apart.extra = extra;
    node->flags |= APART;
}

static inline Node *small_node(double data, int op, uint32_t count) /* of few operands, which it has room for */
{
    Node *node = allocate();
    if (node == NULL)
        return NULL;
    node->data = data;
    node->grad = 0.0;
    node->serial = next_serial++;
    node->op = (uint16_t)op;
    node->count = count;
    node->attributes = NULL;
    node->weak_references = NULL;
    return node;
}

static inline Node *new_node(double data, int op, uint32_t count)
{
    Node **many = NULL;
    if (count > INLINE_OPERANDS && (many = PyMem_Calloc(count, sizeof(Node *))) == NULL)
        return (Node *)PyErr_NoMemory();
    Node *node = small_node(data, op, count);
    if (node == NULL)
        PyMem_Free(many);
    else if (many)
        keep_apart(node, many, NULL);
    return node;
}

static inline void track(Node *node)
{
    if (!(node->flags & TRACKED)) {
        node->flags |= TRACKED;
        tracked_nodes++;
        PyObject_GC_Track(node);
    }
}

/* Reading a number. What a program does next may depend on it, so nodes that are made afterwards from the same leaves
   may have other operands, or other constants, for other numbers: a recorded graph of them stands for these numbers
   only. READ says that somebody has read the number of this node, or of a node made of it; a new number takes the flag
   off a leaf. FOLLOWS_READ says that a node was made of operands that were read before, or of such nodes. */

static inline uint64_t *read_at(Node *leaf) /* how many nodes there were then; in the room for operands, which it has not */
{
    return (uint64_t *)operands_of(leaf);
}

static inline uint64_t *written_at(Node *leaf) /* likewise, if it is WRITTEN */
{
    return (uint64_t *)operands_of(leaf) + 1;
}

static inline void mark_read(Node *node)
{
    node->flags |= READ;
    if (node->count == 0)
        *read_at(node) = next_serial;
}

static int read_operands(Node *node) /* the same for all that the node was made of */
{
    Node *few[64], **waiting = few;
    size_t count = 1, capacity = 64;
    uint64_t computed = node->flags & WRITTEN ? UINT64_MAX : node->serial;
    few[0] = node;
    while (count) {
        node = waiting[--count];
        for (uint32_t k = 0; k < node->count; k++) {
            Node *operand = operands_of(node)[k];
            if (operand->flags & (READ | CONSTANT))
                continue;
            if (operand->count == 0 && operand->flags & WRITTEN && *written_at(operand) > computed)
                continue; /* the number that is read is older than this one */
            mark_read(operand);
            if (operand->count == 0)
                continue;
            if (count == capacity) {
                Node **more = PyMem_Realloc(waiting == few ? NULL : waiting, 2 * capacity * sizeof(Node *));
                if (more == NULL) {
                    if (waiting != few)
                        PyMem_Free(waiting);
                    PyErr_NoMemory();
                    return -1;
                }
                if (waiting == few)
                    memcpy(more, few, sizeof few);
                waiting = more;
                capacity *= 2;
            }
            waiting[count++] = operand;
        }
    }
    if (waiting != few)
        PyMem_Free(waiting);
    return 0;
}

static inline int read_number(Node *node)
{
    if (node->flags & (READ | CONSTANT))
        return 0;
    if (node->count && read_operands(node) < 0)
        return -1;
    mark_read(node); /* last: if there was no memory, the next reader tries again */
    return 0;
}

static inline void write_number(Node *node, double data)
{
    node->data = data;
    node->flags = (uint16_t)((node->flags & ~READ) | WRITTEN);
    if (node->count == 0)
        *written_at(node) = next_serial;
}

static PyObject *frozen_leaf(double data)
{
    Node *node = new_node(data, NO_RULE, 0);
    if (node)
        node->flags |= FROZEN;
    return (PyObject *)node;
}

enum { INHERITED = TRACKED | READ | FOLLOWS_READ };

static void inherit(Node *node, int flags) /* those of its operands; seldom any */
{
    if (flags & TRACKED)
        track(node);
    if (flags & (READ | FOLLOWS_READ))
        node->flags |= FOLLOWS_READ;
}

static int objected(Node *node) /* whether who observes nodes raised an error at this one */
{
    PyObject *asked = Py_NewRef(node_observer); /* it may end its observation meanwhile */
    PyObject *answer = PyObject_CallOneArg(asked, (PyObject *)node);
    Py_DECREF(asked);
    Py_XDECREF(answer);
    return answer == NULL;
}

static inline PyObject *made(Node *node) /* a node that is complete; steals it, and gives NULL on an objection */
{
    if (node_observer && objected(node))
        Py_CLEAR(node);
    return (PyObject *)node;
}

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

static Extra *with_extra(Node *node) /* its extra, made if it has none yet */
{
    Extra *extra = extra_of(node);
    if (extra)
        return extra;
    if ((extra = PyMem_Calloc(1, sizeof(Extra))) == NULL)
        return (Extra *)PyErr_NoMemory();
    Node **operands = operands_of(node);
    if (node->count <= INLINE_OPERANDS)
        operands = memcpy(extra->operands, operands, sizeof extra->operands); /* or what a leaf has there */
    keep_apart(node, operands, extra);
    return extra;
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
    node->data = data;
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
            if (!passes_on(operands[k]))
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
        for (uint32_t k = 0; k < node->count && !failed; k++) {
            Node *operand = operands_of(node)[k];
            if (operand->flags & VISITED || !passes_on(operand))
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

/* Arithmetic. */

static inline PyObject *no_number(void) /* not a number: let the other operand try */
{
    if (!PyErr_ExceptionMatches(PyExc_TypeError))
        return NULL;
    PyErr_Clear();
    Py_RETURN_NOTIMPLEMENTED;
}

#define BINARY_OPERATOR(name)                                                                                 \
    static PyObject *operator_##name(PyObject *left, PyObject *right)                                         \
    {                                                                                                         \
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
        PyErr_Format(PyExc_ValueError, "`a` has %zd numbers and `b` %zd: give two vectors of equal length", length,
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
    if (refused("branches on a Value"))
        return -1;
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
    if (cannot_delete(number, "data") || to_double(number, "data", &data) < 0)
        return -1;
    write_number((Node *)self, data);
    return 0;
}

static int set_grad(PyObject *self, PyObject *number, void *Py_UNUSED(unused))
{
    return cannot_delete(number, "grad") ? -1 : to_double(number, "grad", &((Node *)self)->grad);
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

/* Copies and pickles. A computed node stands for its graph: `_copies.py` walks it, and has each node copied here. */

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
    node->data = data;
    node->grad = grad;
    if (!takes_gradient)
        node->flags |= FROZEN;
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
    int takes = PyObject_IsTrue(wanted);
    if (takes < 0)
        return -1;
    if (passes_on(node) || node->flags & CONSTANT) {
        PyErr_Format(PyExc_ValueError, "`requires_grad` is set on leaves, and %R is none: use detach() to cut it off",
                     self);
        return -1;
    }
    node->flags = (uint16_t)(takes ? node->flags & ~FROZEN : node->flags | FROZEN);
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

static PyObject *get_read_at(PyObject *self, void *Py_UNUSED(unused))
{
    Node *node = (Node *)self;
    return node->flags & READ && node->count == 0 ? PyLong_FromUnsignedLongLong(*read_at(node)) : Py_NewRef(Py_None);
}

static PyObject *get_follows_read(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((Node *)self)->flags & FOLLOWS_READ);
}

/* The type and the module. */

static PyMethodDef value_methods[] = {
    {"backward", (PyCFunction)(void (*)(void))value_backward, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("Set `grad` of every node below to the derivative of this one, times `seed` (1.0).\n\n"
               ">>> x = Value(3.0)\n>>> (x * x).backward()\n>>> x.grad\n6.0\n")},
    {"_push", value_push, METH_NOARGS, PyDoc_STR("Push this node's gradient into its operands.")},
    {"_apply", (PyCFunction)(void (*)(void))value_apply, METH_FASTCALL | METH_STATIC, PyDoc_STR("The node `rule(*operands)`.")},
    {"conjugate", value_conjugate, METH_NOARGS, PyDoc_STR("This Value itself, as of every real number.")},
    {"__format__", value_format, METH_O, NULL},
    {"__reduce__", value_reduce, METH_NOARGS, NULL},
    {"__setstate__", value_setstate, METH_O, NULL},
    {"_copy_to", value_copy_to, METH_VARARGS, PyDoc_STR("Make another Value what this one is, with other operands.")},
    OP_METHODS
    {NULL, NULL, 0, NULL}};

static PyGetSetDef value_attributes[] = {
    {"data", get_data, set_data, PyDoc_STR("The number."), NULL},
    {"grad", get_grad, set_grad, PyDoc_STR("The derivative by this number."), NULL},
    {"requires_grad", get_requires_grad, set_requires_grad,
     PyDoc_STR("Whether gradients are collected here; False on a leaf freezes it."), NULL},
    {"label", get_label, set_label, PyDoc_STR("A name for people."), NULL},
    {"_op", get_op, set_op, PyDoc_STR("A short tag for people."), NULL},
    {"_prev", get_prev, NULL, PyDoc_STR("The operands as a set."), NULL},
    {"_operands", get_operands, NULL, PyDoc_STR("The operands in order, with repeats."), NULL},
    {"_rule", get_rule, NULL, PyDoc_STR("The row of the op table that made this node, or None."), NULL},
    {"_backward", get_backward, set_backward, PyDoc_STR("Pushes the gradient on; assignable."), NULL},
    {"_serial", get_serial, NULL, PyDoc_STR("Counts creations."), NULL},
    {"_constant", get_constant, NULL, PyDoc_STR("Whether this is a plain number that met a Value."), NULL},
    {"_data", get_data_unread, NULL, PyDoc_STR("The number, for code on which no graph depends."), NULL},
    {"_compared", get_compared, NULL, PyDoc_STR("Whether it was itself compared, and so perhaps chosen."), NULL},
    {"_read", get_read, NULL, PyDoc_STR("Whether somebody has read this number, or one made of it."), NULL},
    {"_read_at", get_read_at, NULL, PyDoc_STR("Of a leaf that was read: nodes from this serial number on are younger."),
     NULL},
    {"_follows_read", get_follows_read, NULL, PyDoc_STR("Whether it was made of numbers that had been read."), NULL},
    {"__dict__", get_attributes, set_attributes, PyDoc_STR("Attributes of the user's own."), NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMemberDef value_offsets[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(Node, attributes), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Node, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot value_slots[] = {
    {Py_tp_doc, "Value(data, _children=(), _op='', label='')\n--\n\nA number with a gradient.\n\n"
                ">>> a, b = Value(2.0), Value(-3.0)\n>>> (a * b + 10).backward()\n>>> a.grad, b.grad\n(-3.0, 2.0)\n"},
    {Py_tp_new, value_new},
    {Py_tp_init, value_init},
    {Py_tp_dealloc, value_dealloc},
    {Py_tp_traverse, value_traverse},
    {Py_tp_clear, value_clear},
    {Py_tp_repr, value_repr},
    {Py_tp_hash, NULL}, /* object's, filled in below */
    {Py_tp_richcompare, value_compare},
    {Py_tp_methods, value_methods},
    {Py_tp_getset, value_attributes},
    {Py_tp_members, value_offsets},
    {Py_tp_setattro, value_setattr},
    {Py_nb_add, operator_add},
    {Py_nb_subtract, operator_sub},
    {Py_nb_multiply, operator_mul},
    {Py_nb_true_divide, operator_div},
    {Py_nb_remainder, operator_mod},
    {Py_nb_power, operator_power},
    {Py_nb_negative, operator_neg},
    {Py_nb_positive, value_positive},
    {Py_nb_absolute, operator_abs},
    {Py_nb_bool, value_bool},
    {Py_nb_float, value_float},
    {0, NULL}};

static PyType_Spec value_spec = {
    .name = "chainrule.Value",
    .basicsize = sizeof(Node),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = value_slots,
};

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

static PyObject *move_numbers(PyObject *args, void (*move)(Node *, double *))
{
    PyObject *values;
    Py_buffer buffer;
    if (!PyArg_ParseTuple(args, "O!w*", &PyList_Type, &values, &buffer))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(values), k = 0;
    if (buffer.len < count * (Py_ssize_t)sizeof(double))
        PyErr_SetString(PyExc_ValueError, "the buffer has fewer numbers than there are Values");
    for (; !PyErr_Occurred() && k < count; k++) {
        PyObject *value = PyList_GET_ITEM(values, k);
        if (is_value(value))
            move((Node *)value, (double *)buffer.buf + k);
        else
            PyErr_Format(PyExc_TypeError, "`values` must be Values, got %s", Py_TYPE(value)->tp_name);
    }
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
    return move_numbers(args, write_data);
}

static PyObject *native_read_grad(PyObject *Py_UNUSED(module), PyObject *args)
{
    return move_numbers(args, read_grad);
}

static PyObject *native_write_grad(PyObject *Py_UNUSED(module), PyObject *args)
{
    return move_numbers(args, write_grad);
}

static PyObject *native_add_to_grad(PyObject *Py_UNUSED(module), PyObject *args)
{
    return move_numbers(args, add_to_grad);
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
            node->data = data;
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

/* Whatever lies below what was found, down to a serial number: no younger node is left out. */
static int add_below(Pending *found, uint64_t since)
{
    int failed = 0;
    for (size_t done = 0; done < found->count && !failed; done++) {
        Node *node = found->nodes[done];
        for (uint32_t k = 0; node->serial > since && k < node->count && !failed; k++)
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
    int failed = state <= 0 || add_below(&found, since) < 0;
    unmark(&found);
    Py_ssize_t count = (Py_ssize_t)found.count;
    for (Py_ssize_t k = 0; k < count; k++)
        Py_INCREF(found.nodes[k]); /* each list that is made can start the collector, and so Python code */
    if (state == 0)
        PyErr_SetString(PyExc_TypeError, "`roots` must be Values of the native engine");
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
    return result;
}

/* Derivatives without a trace: for transforms, which leave every `grad` as it is. */

/* Inputs, outputs and whatever lies below the outputs down to the oldest input: what is older cannot depend on one.
   1 if all is well, 0 if some are not Values of this engine. */
static int collect_between(Pending *found, PyObject *outputs, PyObject *inputs, uint64_t *oldest)
{
    int state = add_list(found, inputs);
    *oldest = UINT64_MAX;
    for (size_t k = 0; k < found->count; k++)
        if (found->nodes[k]->serial < *oldest)
            *oldest = found->nodes[k]->serial;
    if (state > 0)
        state = add_list(found, outputs);
    if (state > 0 && add_below(found, *oldest) < 0)
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
        state = collect_between(&found, outputs, inputs, &oldest);
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
    int state = collect_between(&found, outputs, inputs, &oldest), met = 0;
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

static PyObject *native_watch(PyObject *Py_UNUSED(module), PyObject *told)
{
    PyObject *before = watcher;
    watcher = told == Py_None ? NULL : Py_NewRef(told);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *native_decide_equality(PyObject *Py_UNUSED(module), PyObject *asked)
{
    PyObject *before = equality;
    equality = asked == Py_None ? NULL : Py_NewRef(asked);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *native_record(PyObject *Py_UNUSED(module), PyObject *wanted)
{
    int now = PyObject_IsTrue(wanted), before = !without_graph;
    if (now < 0)
        return NULL;
    without_graph = !now;
    threads_without_graph += before - now;
    return PyBool_FromLong(before);
}

static PyObject *native_observe(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *nodes, *passes, *old_nodes = node_observer, *old_passes = pass_observer;
    if (!PyArg_ParseTuple(args, "OO:observe", &nodes, &passes))
        return NULL;
    node_observer = nodes == Py_None ? NULL : Py_NewRef(nodes);
    pass_observer = passes == Py_None ? NULL : Py_NewRef(passes);
    Py_XDECREF(old_nodes);
    Py_XDECREF(old_passes);
    Py_RETURN_NONE;
}

static PyMethodDef module_functions[] = {
    {"trace", native_trace, METH_VARARGS, PyDoc_STR("The nodes below roots, oldest first, their rules and operands.")},
    {"decide_equality", native_decide_equality, METH_O,
     PyDoc_STR("Have a function asked whether two Values are equal; None ends it.")},
    {"watch", native_watch, METH_O, PyDoc_STR("Have a function told of every look at a number; None ends it.")},
    {"meets_others", native_meets_others, METH_VARARGS,
     PyDoc_STR("Whether outputs depend on leaves besides the inputs; None where Python must find out.")},
    {"pull", native_pull, METH_VARARGS,
     PyDoc_STR("Derivatives of Σ seed · output by inputs into a buffer, touching no `grad`; False where Python must.")},
    {"record", native_record, METH_O, PyDoc_STR("Whether ops in this thread remember their operands; gives the old.")},
    {"observe", native_observe, METH_VARARGS, PyDoc_STR("Have functions told of nodes and of backward passes; or None.")},
    {"replay", native_replay, METH_VARARGS, PyDoc_STR("Compute a list of nodes, oldest first, again.")},
    {"dot", (PyCFunction)(void (*)(void))native_dot, METH_FASTCALL, PyDoc_STR("The sum of products of two vectors.")},
    {"total", native_total, METH_O, PyDoc_STR("The sum from left to right.")},
    {"step", native_step, METH_VARARGS,
     PyDoc_STR("Run a recorded rule for a list of parameters, with columns of what it remembers of each.")},
    {"read_data", native_read_data, METH_VARARGS, PyDoc_STR("Copy the data of a list of Values into a buffer.")},
    {"write_data", native_write_data, METH_VARARGS, PyDoc_STR("Set the data of a list of Values from a buffer.")},
    {"read_grad", native_read_grad, METH_VARARGS, PyDoc_STR("Copy the grads of a list of Values into a buffer.")},
    {"write_grad", native_write_grad, METH_VARARGS, PyDoc_STR("Set the grads of a list of Values from a buffer.")},
    {"add_to_grad", native_add_to_grad, METH_VARARGS, PyDoc_STR("Add a buffer to the grads of a list of Values.")},
    {NULL, NULL, 0, NULL}};

static int read_table(void)
{
    PyObject *ops = PyImport_ImportModule("chainrule.ops");
    PyObject *rows = ops ? PyObject_GetAttrString(ops, "TABLE") : NULL;
    PyObject *values = rows ? PyMapping_Values(rows) : NULL;
    as_float = ops ? PyObject_GetAttrString(ops, "as_float") : NULL;
    op_type = ops ? PyObject_GetAttrString(ops, "Op") : NULL;
    call_in_python = op_type ? PyObject_GetAttrString(op_type, "__call__") : NULL;
    table = values && PyList_Check(values) ? values : NULL;
    Py_XDECREF(ops);
    Py_XDECREF(rows);
    if (table == NULL || as_float == NULL || call_in_python == NULL)
        return -1;
    if (PyList_GET_SIZE(table) < BUILTIN_OPS) {
        PyErr_SetString(PyExc_ImportError, "the native engine was built from a longer op table: rebuild it");
        return -1;
    }
    return 0;
}

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "chainrule._native",
    .m_doc = "The native engine.",
    .m_size = -1,
    .m_methods = module_functions,
};

static int add_deepcopy(PyObject *type)
{
    PyObject *copies = PyImport_ImportModule("chainrule.core.copies");
    PyObject *deepcopy = copies ? PyObject_GetAttrString(copies, "deepcopy") : NULL;
    hang = deepcopy ? PyObject_GetAttrString(copies, "hang") : NULL;
    int failed = hang ? PyObject_SetAttrString(type, "__deepcopy__", deepcopy) : -1;
    Py_XDECREF(copies);
    Py_XDECREF(deepcopy);
    return failed;
}

static int add_checksum(PyObject *module)
{
    PyObject *checksum = PyLong_FromUnsignedLong(TABLE_CHECKSUM);
    int failed = checksum == NULL ? -1 : PyModule_AddObjectRef(module, "TABLE_CHECKSUM", checksum);
    Py_XDECREF(checksum);
    return failed;
}

PyMODINIT_FUNC PyInit__native(void)
{
    for (PyType_Slot *slot = value_slots; slot->slot; slot++)
        if (slot->slot == Py_tp_hash)
            slot->pfunc = (void *)PyBaseObject_Type.tp_hash;
    code_name = PyUnicode_InternFromString("code");
    backward_name = PyUnicode_InternFromString("_backward");
    if (code_name == NULL || backward_name == NULL || read_table() < 0)
        return NULL;
    PyObject *module = PyModule_Create(&module_definition);
    PyObject *type = module ? PyType_FromSpec(&value_spec) : NULL;
    PyObject *priority = type ? PyFloat_FromDouble(-1.0) : NULL;
    PyObject *call = type ? PyDescr_NewMethod((PyTypeObject *)op_type, &call_method) : NULL;
    /* NumPy scalars leave arithmetic to Value; NumPy arrays go element by element. */
    if (priority == NULL || PyObject_SetAttrString(type, "__array_priority__", priority) < 0 || add_deepcopy(type) < 0 ||
        PyModule_AddObjectRef(module, "Value", type) < 0 || PyModule_AddObjectRef(module, "call_op", call) < 0 ||
        add_checksum(module) < 0) {
        Py_XDECREF(call);
        Py_XDECREF(priority);
        Py_XDECREF(type);
        Py_XDECREF(module);
        return NULL;
    }
    Py_DECREF(call);
    Py_DECREF(priority);
    ValueType = (PyTypeObject *)type;
    return module;
}
