/* Value in C: the class of engine.py again, where a node costs about what a Python float costs.

   What an op computes comes from the op table: `ops.h` is generated from it at build time. The files here know nodes:
   how they are made, walked and freed. They are one translation unit, in the order in which they are included.

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

#include "node.h"
#include "apply.h"
#include "life.h"
#include "backward.h"
#include "operators.h"
#include "attributes.h"
#include "bulk.h"
#include "symbols.h"
#include "tape.h"
#include "arguments.h"

/* The type and the module. A docstring's first line is what `inspect.signature` and `help` read. */

#define DOC(signature, text) PyDoc_STR(signature "\n--\n\n" text)

static PyMethodDef value_methods[] = {
    {"backward", (PyCFunction)(void (*)(void))value_backward, METH_VARARGS | METH_KEYWORDS,
     DOC("backward($self, seed=1.0)",
         "Set `grad` of every node that the gradient reaches to the derivative of this one, times `seed`.\n\n"
         "Leaves accumulate: the new gradient is added to what they hold, until someone sets it to zero. The nodes in\n"
         "between start again from zero, so a second call is right too. What no gradient reaches, such as the operands of\n"
         "a comparison, is left alone.\n\n"
         ">>> x = Value(3.0)\n>>> (x * x).backward()\n>>> x.grad\n6.0")},
    {"_push", value_push, METH_NOARGS, DOC("_push($self)", "Push this node's gradient into its operands.")},
    {"_apply", (PyCFunction)(void (*)(void))value_apply, METH_FASTCALL | METH_STATIC,
     DOC("_apply(rule, operands, /)", "The node `rule(*operands)`; plain numbers among the operands become constants.")},
    {"conjugate", value_conjugate, METH_NOARGS,
     DOC("conjugate($self)", "This Value itself, as for every real number: NumPy's `var` and `std` ask for it.")},
    {"__format__", value_format, METH_O, DOC("__format__($self, spec, /)", "The number in this format.")},
    {"__reduce__", value_reduce, METH_NOARGS, DOC("__reduce__($self)", "For pickles and copies of leaves.")},
    {"__setstate__", value_setstate, METH_O,
     DOC("__setstate__($self, state, /)",
         "For a copy, which is made without its `__init__`: that of a subclass may want other arguments.")},
    {"_copy_to", value_copy_to, METH_VARARGS,
     DOC("_copy_to($self, twin, operands, /)", "Make `twin` what this node is, with other operands.")},
    OP_METHODS
    {NULL, NULL, 0, NULL}};

static PyGetSetDef value_attributes[] = {
    {"data", get_data, set_data, PyDoc_STR("The number."), NULL},
    {"grad", get_grad, set_grad,
     PyDoc_STR("The derivative of whatever `backward()` was called on, with respect to this number."), NULL},
    {"requires_grad", get_requires_grad, set_requires_grad,
     PyDoc_STR("Whether gradients are collected here. Set it to False on a leaf to freeze it: `backward()` skips it."), NULL},
    {"label", get_label, set_label, PyDoc_STR("A name for people, shown in `repr` and in drawings."), NULL},
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
    {"_read_during", get_read_during, NULL,
     PyDoc_STR("Of a leaf: serial numbers, from and to, of nodes that were made while its number had been read."), NULL},
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
    {Py_tp_new, CODE(value_new)},
    {Py_tp_init, CODE(value_init)},
    {Py_tp_dealloc, CODE(value_dealloc)},
    {Py_tp_traverse, CODE(value_traverse)},
    {Py_tp_clear, CODE(value_clear)},
    {Py_tp_repr, CODE(value_repr)},
    {Py_tp_hash, NULL}, /* object's, filled in below */
    {Py_tp_richcompare, CODE(value_compare)},
    {Py_tp_methods, value_methods},
    {Py_tp_getset, value_attributes},
    {Py_tp_members, value_offsets},
    {Py_tp_setattro, CODE(value_setattr)},
    {Py_nb_add, CODE(operator_add)},
    {Py_nb_subtract, CODE(operator_sub)},
    {Py_nb_multiply, CODE(operator_mul)},
    {Py_nb_true_divide, CODE(operator_div)},
    {Py_nb_remainder, CODE(operator_mod)},
    {Py_nb_power, CODE(operator_power)},
    {Py_nb_negative, CODE(operator_neg)},
    {Py_nb_positive, CODE(value_positive)},
    {Py_nb_absolute, CODE(operator_abs)},
    {Py_nb_bool, CODE(value_bool)},
    {Py_nb_float, CODE(value_float)},
    {0, NULL}};

static PyType_Spec value_spec = {
    .name = "chainrule.Value",
    .basicsize = sizeof(Node),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = value_slots,
};

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
    {"trace", native_trace, METH_VARARGS,
     DOC("trace($module, roots, since, /)", "The nodes below roots, oldest first, their rules and operands.")},
    {"make_symbols", native_make_symbols, METH_VARARGS,
     DOC("make_symbols($module, kind, constants, /)",
         "Have operators on symbols make instances of a class, and of another for plain numbers.")},
    {"decide_equality", native_decide_equality, METH_O,
     DOC("decide_equality($module, asked, /)", "Have a function asked whether two Values are equal; None ends it.")},
    {"watch", native_watch, METH_O,
     DOC("watch($module, watcher, /)", "Have a function told of every look at a number; None ends it.")},
    {"meets_others", native_meets_others, METH_VARARGS,
     DOC("meets_others($module, outputs, inputs, /)",
         "Whether outputs depend on leaves besides the inputs; None where Python must find out.")},
    {"pull", native_pull, METH_VARARGS,
     DOC("pull($module, outputs, seeds, inputs, results, /)",
         "Derivatives of Σ seed · output by inputs into a buffer, touching no `grad`; False where Python must.")},
    {"record", native_record, METH_O,
     DOC("record($module, wanted, /)", "Whether ops in this thread remember their operands; gives the old.")},
    {"observe", native_observe, METH_VARARGS,
     DOC("observe($module, nodes, passes, /)", "Have functions told of nodes and of backward passes; or None.")},
    {"replay", native_replay, METH_VARARGS,
     DOC("replay($module, values, /)", "Compute a list of nodes, oldest first, again.")},
    {"tape_forward", native_tape_forward, METH_VARARGS,
     DOC("tape_forward($module, tape, data, start, stop, /)", "Compute a range of a tape's nodes into a buffer.")},
    {"tape_follow", native_tape_follow, METH_VARARGS,
     DOC("tape_follow($module, tape, data, leaves, columns, rows, width, results, answers, found, /)",
         "The first condition of a tape that is not answered as given, for each row of its leaves' numbers.")},
    {"tape_backward", native_tape_backward, METH_VARARGS,
     DOC("tape_backward($module, tape, data, grads, start, stop, /)",
         "Pass the gradients in a buffer on, through a range of a tape's nodes.")},
    {"dot", (PyCFunction)(void (*)(void))native_dot, METH_FASTCALL,
     DOC("dot($module, a, b, /)", "The sum of products of two vectors.")},
    {"total", native_total, METH_O,
     DOC("total($module, items, /)", "The sum from left to right.")},
    {"step", native_step, METH_VARARGS,
     DOC("step($module, parameters, leaves, nodes, results, columns, /)",
         "Run a recorded rule for a list of parameters, with columns of what it remembers of each.")},
    {"read_data", native_read_data, METH_VARARGS,
     DOC("read_data($module, values, numbers, /)", "Copy the data of a list of Values into a buffer.")},
    {"write_data", native_write_data, METH_VARARGS,
     DOC("write_data($module, values, numbers, /)", "Set the data of a list of Values from a buffer.")},
    {"refrozen", native_refrozen, METH_NOARGS,
     DOC("refrozen($module, /)", "How often `requires_grad` of a Value has been set so far.")},
    {"takes_gradient", native_takes_gradient, METH_VARARGS,
     DOC("takes_gradient($module, values, /)", "One byte per Value: 0 if it is frozen.")},
    {"replaced", native_replaced, METH_NOARGS,
     DOC("replaced($module, /)", "How many numbers of Values have been replaced so far.")},
    {"read_grad", native_read_grad, METH_VARARGS,
     DOC("read_grad($module, values, numbers, /)", "Copy the grads of a list of Values into a buffer.")},
    {"write_grad", native_write_grad, METH_VARARGS,
     DOC("write_grad($module, values, numbers, /)", "Set the grads of a list of Values from a buffer.")},
    {"add_to_grad", native_add_to_grad, METH_VARARGS,
     DOC("add_to_grad($module, values, numbers, /)", "Add a buffer to the grads of a list of Values.")},
    {"fill", native_fill, METH_VARARGS,
     DOC("fill($module, structure, thing, numbers, array_type, static_type, /)",
         "Copy the numbers in a thing into a buffer, if it has the given structure; whether it has.")},
    {NULL, NULL, 0, NULL}};

static int read_table(void)
{
    PyObject *ops = PyImport_ImportModule("chainrule.ops");
    PyObject *rows = ops ? PyObject_GetAttrString(ops, "TABLE") : NULL;
    PyObject *values = rows ? PyMapping_Values(rows) : NULL;
    as_float = ops ? PyObject_GetAttrString(ops, "as_float") : NULL;
    carrier_type = ops ? PyObject_GetAttrString(ops, "Carrier") : NULL;
    op_type = ops ? PyObject_GetAttrString(ops, "Op") : NULL;
    call_in_python = op_type ? PyObject_GetAttrString(op_type, "__call__") : NULL;
    table = values && PyList_Check(values) ? values : NULL;
    Py_XDECREF(ops);
    Py_XDECREF(rows);
    if (table == NULL || as_float == NULL || carrier_type == NULL || call_in_python == NULL)
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
    PyObject *copies = PyImport_ImportModule("chainrule.core.walk");
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
            slot->pfunc = CODE(PyBaseObject_Type.tp_hash);
    code_name = PyUnicode_InternFromString("code");
    backward_name = PyUnicode_InternFromString("_backward");
    number_name = PyUnicode_InternFromString("number");
    array_name = PyUnicode_InternFromString("array");
    keys_name = PyUnicode_InternFromString("keys");
    kind_name = PyUnicode_InternFromString("kind");
    value_name = PyUnicode_InternFromString("value");
    operands_name = PyUnicode_InternFromString("_operands");
    serial_name = PyUnicode_InternFromString("_serial");
    rule_name = PyUnicode_InternFromString("_rule");
    self_name = PyUnicode_InternFromString("__self__");
    if (!code_name || !backward_name || !number_name || !array_name || !keys_name || !kind_name || !value_name ||
        !operands_name || !serial_name || !rule_name || !self_name || read_table() < 0)
        return NULL;
    PyObject *module = PyModule_Create(&module_definition);
    PyObject *type = module ? PyType_FromSpec(&value_spec) : NULL;
    PyObject *priority = type ? PyFloat_FromDouble(-1.0) : NULL;
    PyObject *symbol = type ? PyType_FromSpec(&symbol_spec) : NULL;
    PyObject *call = type ? PyDescr_NewMethod((PyTypeObject *)op_type, &call_method) : NULL;
    /* NumPy scalars leave arithmetic to Value; NumPy arrays go element by element. */
    if (priority == NULL || symbol == NULL || PyModule_AddObjectRef(module, "Symbol", symbol) < 0 ||
        PyObject_SetAttrString(type, "__array_priority__", priority) < 0 || add_deepcopy(type) < 0 ||
        PyModule_AddObjectRef(module, "Value", type) < 0 || PyModule_AddObjectRef(module, "call_op", call) < 0 ||
        PyModule_AddIntConstant(module, "BUILTIN_OPS", BUILTIN_OPS) < 0 || add_checksum(module) < 0) {
        Py_XDECREF(call);
        Py_XDECREF(symbol);
        Py_XDECREF(priority);
        Py_XDECREF(type);
        Py_XDECREF(module);
        return NULL;
    }
    Py_DECREF(call);
    Py_DECREF(priority);
    ValueType = (PyTypeObject *)type;
    SymbolBase = (PyTypeObject *)symbol;
    return module;
}
