/* A node: what it holds, and how it is allocated, read and completed. */

enum { NO_RULE = UINT16_MAX, USER_RULE = UINT16_MAX - 1 };    /* beside the table's codes: Node.op */
enum { CONSTANT = 1, VISITED = 2, TRACKED = 4, COUNTED = 8, READ = 16, FROZEN = 32, FOLLOWS_READ = 64 }; /* Node.flags */
enum { COMPARED = 128, WRITTEN = 256 }; /* Node.flags: by `<` and its kin or `if`; by an assignment to `.data` */
enum { APART = 1 << 15 }; /* Node.flags: the operands, or what few nodes have, are not in the node itself */
enum { INLINE_OPERANDS = 2 };

/* All that is not C11, with what stands in for it: prefetching is a hint, so it may be nothing, and MSVC has a name of its
   own for thread-local variables. */
#ifdef _MSC_VER
#define PER_THREAD __declspec(thread)
#else
#define PER_THREAD _Thread_local
#endif
#ifdef __GNUC__ /* clang too */
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

/* Python's slots hold functions as `void *`, for which ISO C has no conversion; by way of an integer, the result is what the
   compiler defines, and all that run Python define the same address. */
#define CODE(function) ((void *)(uintptr_t)(function))

typedef struct {
    uint64_t first, end; /* the serial numbers of the nodes that were made meanwhile */
} While;

typedef struct { /* what few nodes have, and their operands if they are few: the pointer to it takes their place */
    PyObject *label, *tag, *closure, *rule;
    uint64_t silent; /* a bit for each of the first operands that a user's rule passes no gradient to */
    struct Node *operands[INLINE_OPERANDS];
    While earlier, latest; /* of a leaf: while a number that it had was read already, and not yet replaced */
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
static uint64_t flags_replaced; /* how often `requires_grad` was set */
static uint64_t numbers_replaced; /* how often: never the same again after a change */
static PyObject *table;     /* the rows of the op table, by code */
static PyObject *as_float;  /* ops.as_float, for numbers that are neither float nor int */
static PyObject *hang;      /* copies.hang, which gives a copy its attributes */
static PyObject *carrier_type; /* ops.Carrier, of which other kinds of numbers are */
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

/* Nodes of one op that follow each other in a graph given as arrays (see tape.h). */
typedef struct {
    int32_t code;        /* of the op, or ARITHMETIC; others are leaves, or nodes that Python computes */
    int32_t arity;       /* integers that a node has among the operands: their number, or NODE */
    int32_t taken;       /* bit k: the nodes pass a gradient to their operand k (in arithmetic: some do) */
    int32_t start, stop; /* the nodes: the first, and the one after the last */
    int32_t first;       /* where their operands start */
} Run;

typedef struct {
    const Run *runs;         /* oldest node first */
    const int32_t *run_of;   /* each node's run */
    const int32_t *operands; /* places of nodes */
} Tape;

#define ARITHMETIC (-2) /* sums, differences and products in any order */
#include "arithmetic.h"
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

static Extra *extra_if_there_is_memory(Node *node) /* its extra, made if it has none yet */
{
    Extra *extra = extra_of(node);
    if (extra || (extra = PyMem_Calloc(1, sizeof(Extra))) == NULL)
        return extra;
    Node **operands = operands_of(node);
    if (node->count <= INLINE_OPERANDS)
        operands = memcpy(extra->operands, operands, sizeof extra->operands); /* or what a leaf has there */
    keep_apart(node, operands, extra);
    return extra;
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
   only. READ says that somebody has read the number of this node, or of a node made of it. A new number takes the flag
   off, for nodes that are made from then on; a leaf still knows which were made before, and after the look.
   FOLLOWS_READ says that a node was made of operands that were read before, or of such nodes. */

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

static int keep_in_mind(Node *leaf) /* that nodes were made since it was read; 0 if there is no memory for that */
{
    Extra *extra = extra_if_there_is_memory(leaf);
    if (extra == NULL)
        return 0;
    if (extra->latest.end < *read_at(leaf)) { /* nodes were made in between that know nothing of the number */
        if (extra->earlier.end == 0)
            extra->earlier.first = extra->latest.first;
        extra->earlier.end = extra->latest.end; /* with what lies between: a leaf has room for two */
        extra->latest.first = *read_at(leaf);
    }
    extra->latest.end = next_serial;
    return 1;
}

/* Another number for a node that others may know already: all that change one come by here, so that a program which
   has read its parameters can tell whether they may have changed since. */
static inline void replace_number(Node *node, double data)
{
    node->data = data;
    numbers_replaced++;
}

/* The same for whether it takes a gradient. */
static inline void set_frozen(Node *node, int frozen)
{
    node->flags = (uint16_t)(frozen ? node->flags | FROZEN : node->flags & ~FROZEN);
    flags_replaced++;
}

static inline void write_number(Node *node, double data)
{
    replace_number(node, data);
    node->flags |= WRITTEN;
    if (node->count == 0)
        *written_at(node) = next_serial;
    if (node->count || !(node->flags & READ) || *read_at(node) == next_serial || keep_in_mind(node))
        node->flags &= (uint16_t)~READ;
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
