/* Tapes: graphs as arrays, which are run again and again with other numbers.

   Behind the numbers of all nodes there is -1.0, by which negative numbers are products. Behind the gradients there is
   room for those that nobody wants. */

static int read_tape(const Py_buffer *runs, const Py_buffer *run_of, const Py_buffer *operands, const Py_buffer *numbers,
                     Py_ssize_t start, Py_ssize_t stop, Tape *tape)
{
    const Py_ssize_t count = run_of->len / (Py_ssize_t)sizeof(int32_t);
    const Py_ssize_t last = count ? ((const int32_t *)run_of->buf)[count - 1] : -1;
    if (start < 0 || stop > count || numbers->len < (count + 1) * (Py_ssize_t)sizeof(double) ||
        runs->len / (Py_ssize_t)sizeof(Run) <= last) {
        PyErr_SetString(PyExc_ValueError, "the parts of the tape have different lengths, or it is shorter than `stop`");
        return -1;
    }
    *tape = (Tape){runs->buf, run_of->buf, operands->buf};
    return 0;
}

/* Computes the nodes from `start` to `stop` from the numbers of older ones. Codes that are no op's are left alone. */
static PyObject *native_tape_forward(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer runs, run_of, operands, data;
    Py_ssize_t start, stop;
    Tape tape;
    if (!PyArg_ParseTuple(args, "(y*y*y*)w*nn", &runs, &run_of, &operands, &data, &start, &stop))
        return NULL;
    int failed = read_tape(&runs, &run_of, &operands, &data, start, stop, &tape);
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS
        tape_forward(&tape, data.buf, start, stop);
        Py_END_ALLOW_THREADS
    }
    Py_buffer *buffers[] = {&runs, &run_of, &operands, &data};
    for (size_t k = 0; k < sizeof buffers / sizeof *buffers; k++)
        PyBuffer_Release(buffers[k]);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* Whether all of `count` places are below `size`. */
static int are_below(const int32_t *places, Py_ssize_t count, Py_ssize_t size)
{
    for (Py_ssize_t k = 0; k < count; k++)
        if (places[k] < 0 || places[k] >= size)
            return 0;
    return 1;
}

/* For each row of numbers, which of the nodes at `results` is the first whose truth is not as in `answers`; -1 if none
   is. The nodes at `leaves` get the row's numbers in `columns`; `data` has those of all other leaves. Nothing beyond
   the first such node is computed. */
static PyObject *native_tape_follow(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { RUNS, RUN_OF, OPERANDS, DATA, LEAVES, COLUMNS, ROWS, RESULTS, ANSWERS, FOUND, COUNT };
    Py_buffer b[COUNT];
    PyObject *parts;
    Py_ssize_t width;
    Tape tape;
    /* in two calls: CPython's list of what to release has room for a call's arguments, not for what is nested in them */
    if (!PyArg_ParseTuple(args, "O!w*y*y*y*ny*y*w*", &PyTuple_Type, &parts, &b[DATA], &b[LEAVES], &b[COLUMNS], &b[ROWS],
                          &width, &b[RESULTS], &b[ANSWERS], &b[FOUND]))
        return NULL;
    if (!PyArg_ParseTuple(parts, "y*y*y*", &b[RUNS], &b[RUN_OF], &b[OPERANDS])) {
        for (int k = DATA; k < COUNT; k++)
            PyBuffer_Release(&b[k]);
        return NULL;
    }
    const Py_ssize_t place = sizeof(int32_t), nodes = b[RUN_OF].len / place;
    const Py_ssize_t inputs = b[LEAVES].len / place, wanted = b[RESULTS].len / place, count = b[FOUND].len / place;
    const int32_t *leaves = b[LEAVES].buf, *columns = b[COLUMNS].buf, *results = b[RESULTS].buf;
    const uint8_t *answers = b[ANSWERS].buf;
    int failed = read_tape(&b[RUNS], &b[RUN_OF], &b[OPERANDS], &b[DATA], 0, nodes, &tape);
    if (!failed && (b[COLUMNS].len != b[LEAVES].len || b[ANSWERS].len < wanted || width < 0 ||
                    b[ROWS].len < count * width * (Py_ssize_t)sizeof(double) || !are_below(leaves, inputs, nodes) ||
                    !are_below(columns, inputs, width) || !are_below(results, wanted, nodes))) {
        PyErr_SetString(PyExc_ValueError, "the rows, leaves or results do not fit the tape");
        failed = -1;
    }
    if (!failed) {
        double *data = b[DATA].buf;
        const double *row = b[ROWS].buf;
        int32_t *found = b[FOUND].buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t n = 0; n < count; n++, row += width) {
            Py_ssize_t done = 0;
            for (Py_ssize_t k = 0; k < inputs; k++)
                data[leaves[k]] = row[columns[k]];
            found[n] = -1;
            for (Py_ssize_t k = 0; k < wanted && found[n] < 0; k++) {
                if (done <= results[k]) {
                    tape_forward(&tape, data, done, results[k] + 1);
                    done = results[k] + 1;
                }
                if ((data[results[k]] != 0.0) != answers[k])
                    found[n] = (int32_t)k;
            }
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
    Py_buffer runs, run_of, operands, data, grads;
    Py_ssize_t start, stop;
    Tape tape;
    if (!PyArg_ParseTuple(args, "(y*y*y*)y*w*nn", &runs, &run_of, &operands, &data, &grads, &start, &stop))
        return NULL;
    int failed = read_tape(&runs, &run_of, &operands, &data, start, stop, &tape);
    if (!failed && grads.len != data.len) {
        PyErr_SetString(PyExc_ValueError, "there must be as many gradients as numbers");
        failed = -1;
    }
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS
        tape_backward(&tape, data.buf, grads.buf, start, stop);
        Py_END_ALLOW_THREADS
    }
    Py_buffer *buffers[] = {&runs, &run_of, &operands, &data, &grads};
    for (size_t k = 0; k < sizeof buffers / sizeof *buffers; k++)
        PyBuffer_Release(buffers[k]);
    return failed ? NULL : Py_NewRef(Py_None);
}
