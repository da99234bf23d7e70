/* The numbers in the arguments of a compiled function, if these are arranged as those of an earlier call were. */

static PyObject *number_name; /* "number": the structure of a number (core/structure.py) */
static PyObject *array_name;  /* "array" */
static PyObject *keys_name, *kind_name; /* the attributes of a dict's structure */
static PyObject *value_name;  /* "value", that of something without numbers */

typedef struct {
    double *next, *end;
    PyTypeObject *array_type, *static_type; /* numpy.ndarray; the kind of what has no numbers */
} Room;

static int same_key(PyObject *a, PyObject *b)
{
    return a == b || (PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b) && PyUnicode_Compare(a, b) == 0);
}

static int fill(PyObject *structure, PyObject *thing, Room *room);

static int fill_from_dict(PyObject *kind, PyObject *parts, PyObject *dict, Room *room)
{
    PyObject *keys = PyObject_GetAttr(kind, keys_name), *type = keys ? PyObject_GetAttr(kind, kind_name) : NULL;
    PyObject *key, *entry;
    Py_ssize_t at = 0, count = PyTuple_GET_SIZE(parts);
    int filled = type == (PyObject *)&PyDict_Type && PyTuple_CheckExact(keys) && PyDict_GET_SIZE(dict) == count &&
                 PyTuple_GET_SIZE(keys) == count;
    for (Py_ssize_t k = 0; filled && k < count; k++)
        filled = PyDict_Next(dict, &at, &key, &entry) && same_key(PyTuple_GET_ITEM(keys, k), key) &&
                 fill(PyTuple_GET_ITEM(parts, k), entry, room);
    Py_XDECREF(keys);
    Py_XDECREF(type);
    PyErr_Clear();
    return filled;
}

/* One number of an array, by the letter that the buffer protocol has for its type. */
static double number_at(const char *at, char letter)
{
#define AS(type) { type number; memcpy(&number, at, sizeof number); return (double)number; }
    switch (letter) {
    case 'd': AS(double)
    case 'f': AS(float)
    case 'i': AS(int)
    case 'l': AS(long)
    case 'q': AS(long long)
    case '?': case 'B': AS(unsigned char)
    }
#undef AS
    return 0.0;
}

static void copy_axis(const Py_buffer *array, int axis, const char *at, Room *room)
{
    Py_ssize_t count = array->shape[axis], stride = array->strides[axis];
    for (Py_ssize_t k = 0; k < count; k++, at += stride)
        if (axis + 1 < array->ndim)
            copy_axis(array, axis + 1, at, room);
        else
            *room->next++ = number_at(at, array->format[0]);
}

static int fill_from_array(PyObject *shape, PyObject *array, Room *room)
{
    Py_buffer buffer;
    if (!Py_IS_TYPE(array, room->array_type))
        return 0;
    if (PyObject_GetBuffer(array, &buffer, PyBUF_FORMAT | PyBUF_STRIDES) < 0) {
        PyErr_Clear(); /* no numbers, but dates, say */
        return 0;
    }
    const char *format = buffer.format;
    int filled = strlen(format) == 1 && strchr("dfilq?B", *format) && buffer.ndim && buffer.ndim == PyTuple_GET_SIZE(shape) &&
                 buffer.len / buffer.itemsize <= room->end - room->next;
    for (int axis = 0; filled && axis < buffer.ndim; axis++)
        filled = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, axis)) == buffer.shape[axis];
    if (filled && *format == 'd' && PyBuffer_IsContiguous(&buffer, 'C')) {
        memcpy(room->next, buffer.buf, (size_t)buffer.len);
        room->next += buffer.len / buffer.itemsize;
    }
    else if (filled)
        copy_axis(&buffer, 0, buffer.buf, room);
    PyBuffer_Release(&buffer);
    return filled;
}

/* Whether a thing is a scalar of NumPy, as in list(array): its types of C have such names, and classes of Python do not. */
static int is_numpy_scalar(PyObject *thing)
{
    static const char *const kinds[] = {"float", "int", "uint", "bool"};
    const char *name = Py_TYPE(thing)->tp_name;
    int found = 0;
    if (strncmp(name, "numpy.", 6) == 0)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            found |= strncmp(name + 6, kinds[k], strlen(kinds[k])) == 0;
    return found;
}

static int fill_number(PyObject *thing, Room *room)
{
    if (room->next == room->end)
        return 0;
    if (PyFloat_CheckExact(thing))
        *room->next++ = PyFloat_AS_DOUBLE(thing);
    else if (PyLong_CheckExact(thing) || PyBool_Check(thing))
        *room->next++ = PyLong_AsDouble(thing);
    else if (is_numpy_scalar(thing) && PyFloat_Check(thing)) /* a double is a float of Python too */
        *room->next++ = PyFloat_AS_DOUBLE(thing);
    else if (is_numpy_scalar(thing)) {
        PyObject *number = PyNumber_Float(thing);
        *room->next++ = number ? PyFloat_AS_DOUBLE(number) : 0.0;
        Py_XDECREF(number);
    }
    else
        return 0;
    int is_fine = !PyErr_Occurred();
    PyErr_Clear(); /* too large: the error is for others to explain */
    return is_fine;
}

static int fill(PyObject *structure, PyObject *thing, Room *room) /* whether the thing has that structure */
{
    if (structure == number_name)
        return fill_number(thing, room);
    if (!PyTuple_CheckExact(structure) || PyTuple_GET_SIZE(structure) != 2)
        return 0;
    PyObject *kind = PyTuple_GET_ITEM(structure, 0), *parts = PyTuple_GET_ITEM(structure, 1);
    if (!PyTuple_CheckExact(parts))
        return 0;
    if (kind == array_name)
        return fill_from_array(parts, thing, room);
    if (Py_IS_TYPE(kind, room->static_type)) { /* no numbers: it must be the same thing */
        PyObject *value = PyObject_GetAttr(kind, value_name);
        int same = value != NULL && same_key(value, thing);
        Py_XDECREF(value);
        PyErr_Clear();
        return same;
    }
    if (Py_EnterRecursiveCall(" in an argument")) {
        PyErr_Clear();
        return 0;
    }
    int filled = 0;
    if (PyDict_CheckExact(thing))
        filled = fill_from_dict(kind, parts, thing, room);
    else if (kind == (PyObject *)Py_TYPE(thing) && (PyList_CheckExact(thing) || PyTuple_Check(thing))) {
        Py_ssize_t count = PyTuple_GET_SIZE(parts);
        filled = PySequence_Fast_GET_SIZE(thing) == count;
        for (Py_ssize_t k = 0; filled && k < count; k++)
            filled = fill(PyTuple_GET_ITEM(parts, k), PySequence_Fast_GET_ITEM(thing, k), room);
    }
    Py_LeaveRecursiveCall();
    return filled;
}

/* Whether one of the arguments is a bool, which by itself is no number but part of the structure. */
static int has_bool(PyObject *arguments)
{
    int found = 0;
    for (Py_ssize_t k = 0; PyTuple_Check(arguments) && k < PyTuple_GET_SIZE(arguments); k++)
        found |= PyBool_Check(PyTuple_GET_ITEM(arguments, k));
    return found;
}

static PyObject *native_fill(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *structure, *thing, *array_type, *static_type;
    Py_buffer buffer;
    if (!PyArg_ParseTuple(args, "OOw*O!O!", &structure, &thing, &buffer, &PyType_Type, &array_type, &PyType_Type,
                          &static_type))
        return NULL;
    double *start = buffer.buf, *end = start + buffer.len / (Py_ssize_t)sizeof(double);
    Room room = {start, end, (PyTypeObject *)array_type, (PyTypeObject *)static_type};
    int filled = !has_bool(thing) && fill(structure, thing, &room) && room.next == end;
    PyBuffer_Release(&buffer);
    return PyBool_FromLong(filled);
}
