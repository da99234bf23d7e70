/* Tapes: graphs as arrays, which are run again and again with other numbers. */

static int read_tape(const Py_buffer *codes, const Py_buffer *firsts, const Py_buffer *operands, const Py_buffer *taken,
                     const Py_buffer *numbers, Py_ssize_t start, Py_ssize_t stop, Tape *tape)
{
    Py_ssize_t count = codes->len / (Py_ssize_t)sizeof(int32_t);
    if (start < 0 || stop > count || firsts->len < codes->len || taken->len < count ||
        numbers->len < count * (Py_ssize_t)sizeof(double)) {
        PyErr_SetString(PyExc_ValueError, "the parts of the tape have different lengths, or it is shorter than `stop`");
        return -1;
    }
    *tape = (Tape){codes->buf, firsts->buf, operands->buf, taken->buf};
    return 0;
}

/* Computes the nodes from `start` to `stop` from the numbers of older ones. Codes that are no op's are left alone. */
static PyObject *native_tape_forward(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer codes, firsts, operands, taken, data;
    Py_ssize_t start, stop;
    Tape tape;
    if (!PyArg_ParseTuple(args, "(y*y*y*y*)w*nn", &codes, &firsts, &operands, &taken, &data, &start, &stop))
        return NULL;
    int failed = read_tape(&codes, &firsts, &operands, &taken, &data, start, stop, &tape);
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS
        tape_forward(&tape, data.buf, start, stop);
        Py_END_ALLOW_THREADS
    }
    Py_buffer *buffers[] = {&codes, &firsts, &operands, &taken, &data};
    for (size_t k = 0; k < sizeof buffers / sizeof *buffers; k++)
        PyBuffer_Release(buffers[k]);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* Computes the whole tape once for each row of numbers, which are those of the nodes at `leaves`, and copies the numbers
   of the nodes at `results` to a row of `outputs`. `data` has the numbers of all other leaves. */
static PyObject *native_tape_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { CODES, FIRSTS, OPERANDS, TAKEN, DATA, LEAVES, ROWS, RESULTS, OUTPUTS, COUNT };
    Py_buffer b[COUNT];
    Tape tape;
    if (!PyArg_ParseTuple(args, "(y*y*y*y*)w*y*y*y*w*", &b[CODES], &b[FIRSTS], &b[OPERANDS], &b[TAKEN], &b[DATA],
                          &b[LEAVES], &b[ROWS], &b[RESULTS], &b[OUTPUTS]))
        return NULL;
    Py_ssize_t nodes = b[CODES].len / (Py_ssize_t)sizeof(int32_t);
    Py_ssize_t width = b[LEAVES].len / (Py_ssize_t)sizeof(int32_t), wanted = b[RESULTS].len / (Py_ssize_t)sizeof(int32_t);
    Py_ssize_t count = wanted ? b[OUTPUTS].len / (wanted * (Py_ssize_t)sizeof(double)) : 0;
    const int32_t *leaves = b[LEAVES].buf, *results = b[RESULTS].buf;
    int failed = read_tape(&b[CODES], &b[FIRSTS], &b[OPERANDS], &b[TAKEN], &b[DATA], 0, nodes, &tape);
    int fits = b[ROWS].len >= count * width * (Py_ssize_t)sizeof(double);
    for (Py_ssize_t k = 0; k < width; k++)
        fits = fits && 0 <= leaves[k] && leaves[k] < nodes;
    for (Py_ssize_t k = 0; k < wanted; k++)
        fits = fits && 0 <= results[k] && results[k] < nodes;
    if (!failed && !fits) {
        PyErr_SetString(PyExc_ValueError, "the rows, or the places of leaves and results, do not fit the tape");
        failed = -1;
    }
    if (!failed) {
        double *data = b[DATA].buf, *output = b[OUTPUTS].buf;
        const double *row = b[ROWS].buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t n = 0; n < count; n++) {
            for (Py_ssize_t k = 0; k < width; k++)
                data[leaves[k]] = *row++;
            tape_forward(&tape, data, 0, nodes);
            for (Py_ssize_t k = 0; k < wanted; k++)
                *output++ = data[results[k]];
        }
        Py_END_ALLOW_THREADS
    }
    for (int k = 0; k < COUNT; k++)
        PyBuffer_Release(&b[k]);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* Passes gradients on, newest node first. A node that has passed its own on has 0 again. */
static PyObject *native_tape_backward(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer codes, firsts, operands, taken, data, grads;
    Py_ssize_t start, stop;
    Tape tape;
    if (!PyArg_ParseTuple(args, "(y*y*y*y*)y*w*nn", &codes, &firsts, &operands, &taken, &data, &grads, &start, &stop))
        return NULL;
    int failed = read_tape(&codes, &firsts, &operands, &taken, &data, start, stop, &tape);
    if (!failed && grads.len != data.len) {
        PyErr_SetString(PyExc_ValueError, "there must be as many gradients as numbers");
        failed = -1;
    }
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS
        tape_backward(&tape, data.buf, grads.buf, start, stop);
        Py_END_ALLOW_THREADS
    }
    Py_buffer *buffers[] = {&codes, &firsts, &operands, &taken, &data, &grads};
    for (size_t k = 0; k < sizeof buffers / sizeof *buffers; k++)
        PyBuffer_Release(buffers[k]);
    return failed ? NULL : Py_NewRef(Py_None);
}
