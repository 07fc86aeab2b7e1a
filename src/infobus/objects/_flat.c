/* Encode and decode flat objects, which hold only scalars, as MessagePack.

   This does what `codec` and `runs` do in Python, but only for the common case: an object, or its
   bytes, that matches the type exactly, with the attributes in the type's order. For everything
   else each function returns None, and Python handles it. So this file makes no decision and
   words no error. Without this module everything works the same, only slower. */

#include "_values.h"

#define FIELDS_MAX 32
#define HEADER_BYTES_MAX 3
#define OBJECT_EXT 1   /* as in `outbound` */
#define NESTING_MAX 64 /* as `DEPTH_MAX` in `kinds` */

typedef struct {
    PyObject_HEAD
    PyTypeObject *cls;
    PyObject *tag;       /* the descriptor of the slot beside the attributes */
    PyObject *no_arguments;
    int is_closed;       /* its objects cannot be part of a reference cycle */
    Py_ssize_t bytes_max;
    Py_ssize_t count;
    Py_ssize_t header_len;
    unsigned char header[HEADER_BYTES_MAX];
    Field fields[FIELDS_MAX];
} Flat;

static PyObject *no_answer(void)
{
    if (PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_MemoryError))
            return NULL;
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}

static int set_tag(Flat *self, PyObject *obj, PyObject *tag)
{
    return Py_TYPE(self->tag)->tp_descr_set(self->tag, obj, tag);
}

static int is_untagged(Flat *self, PyObject *obj)
{
    PyObject *tag = Py_TYPE(self->tag)->tp_descr_get(self->tag, obj, (PyObject *)Py_TYPE(obj));
    Py_XDECREF(tag);
    return tag == Py_None;
}

/* The id of an object that was first published as `number` of `sender`. */
static PyObject *id_of(PyObject *sender, PyObject *number)
{
    PyObject *id = PyTuple_Pack(2, sender, number);
    if (id != NULL && PyUnicode_CheckExact(sender) && PyLong_CheckExact(number))
        PyObject_GC_UnTrack(id); /* it cannot be part of a cycle */
    return id;
}

/* --- encoding ------------------------------------------------------------------------------ */

/* Returns NULL, perhaps with an error set, if the object is too large or not as its type says. */
static PyObject *encode_object(Flat *self, PyObject *obj, Py_ssize_t bytes_max)
{
    Part parts[FIELDS_MAX];
    Py_ssize_t size = self->header_len;
    PyObject *body = NULL, *attributes = PyObject_GenericGetDict(obj, NULL);
    unsigned char *at;
    if (attributes == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        const Field *field = &self->fields[i];
        Py_ssize_t taken = -1;
        /* Borrowed: nothing here runs code that could change the attributes. */
        parts[i].value = PyDict_GetItemWithError(attributes, field->name);
        if (parts[i].value == NULL || (taken = measure(field, &parts[i])) < 0)
            goto done;
        size += PyBytes_GET_SIZE(field->key) + taken;
    }
    if (size > bytes_max || (body = PyBytes_FromStringAndSize(NULL, size)) == NULL)
        goto done;
    at = (unsigned char *)PyBytes_AS_STRING(body);
    memcpy(at, self->header, self->header_len);
    at += self->header_len;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        PyObject *key = self->fields[i].key;
        memcpy(at, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key));
        at = put_value(at + PyBytes_GET_SIZE(key), &self->fields[i], &parts[i]);
    }
done:
    Py_DECREF(attributes);
    return body;
}

/* Encodes an object, with or without an id. */
static PyObject *Flat_encode(Flat *self, PyObject *obj)
{
    PyObject *body = NULL;
    if (Py_TYPE(obj) == self->cls)
        body = encode_object(self, obj, self->bytes_max);
    return body == NULL ? no_answer() : body;
}

/* Encodes an object that has no id yet, and sets its id. */
static PyObject *Flat_encode_new(Flat *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *body = NULL, *id;
    if (nargs != 3)
        return PyErr_Format(PyExc_TypeError, "encode_new(obj, sender, number)");
    if (Py_TYPE(args[0]) == self->cls && is_untagged(self, args[0]))
        body = encode_object(self, args[0], self->bytes_max);
    if (body == NULL)
        return no_answer();
    id = id_of(args[1], args[2]);
    if (id == NULL || set_tag(self, args[0], id) < 0)
        Py_CLEAR(body);
    Py_XDECREF(id);
    return body;
}

static PyObject *Flat_encode_run(Flat *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyList_CheckExact(args[0]))
        return PyErr_Format(PyExc_TypeError, "encode_run(objects: list, bytes_max)");
    PyObject *objects, *bodies = NULL;
    Py_ssize_t bytes_max = PyLong_AsSsize_t(args[1]), count, done = 0;
    if (bytes_max == -1 && PyErr_Occurred())
        return NULL;
    if ((objects = PyList_AsTuple(args[0])) == NULL) /* another thread may change the list */
        return NULL;
    count = PyTuple_GET_SIZE(objects);
    if ((bodies = PyList_New(count)) == NULL)
        goto done;
    for (; done < count; done++) {
        PyObject *obj = PyTuple_GET_ITEM(objects, done), *body = NULL;
        if (Py_TYPE(obj) == self->cls && is_untagged(self, obj))
            body = encode_object(self, obj, bytes_max);
        if (body == NULL)
            break;
        PyList_SET_ITEM(bodies, done, body);
        /* A temporary mark, to notice an object that is in the list twice. */
        if (set_tag(self, obj, Py_False) < 0)
            break;
    }
    if (done < count)
        Py_CLEAR(bodies);
    while (done-- > 0)
        if (set_tag(self, PyTuple_GET_ITEM(objects, done), Py_None) < 0)
            Py_CLEAR(bodies);
done:
    Py_DECREF(objects);
    return bodies == NULL ? no_answer() : bodies;
}

static PyObject *Flat_identify_run(Flat *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[2])
        || PyList_GET_SIZE(args[0]) != PyList_GET_SIZE(args[2]))
        return PyErr_Format(PyExc_TypeError, "identify_run(objects: list, sender, numbers: list)");
    PyObject *objects = PyList_AsTuple(args[0]), *numbers = PyList_AsTuple(args[2]);
    int failed = objects == NULL || numbers == NULL;
    if (!failed && PyTuple_GET_SIZE(objects) != PyTuple_GET_SIZE(numbers)) {
        PyErr_SetString(PyExc_RuntimeError, "the lists were changed meanwhile");
        failed = 1;
    }
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(objects); i++) {
        PyObject *id = id_of(args[1], PyTuple_GET_ITEM(numbers, i));
        failed = id == NULL || set_tag(self, PyTuple_GET_ITEM(objects, i), id) < 0;
        Py_XDECREF(id);
    }
    Py_XDECREF(objects);
    Py_XDECREF(numbers);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* --- decoding ------------------------------------------------------------------------------ */

static PyObject *make_object(Flat *self, PyObject **values, PyObject *tag)
{
    /* Not tp_alloc: only this way does Python store attributes inside the object. */
    PyObject *obj = PyBaseObject_Type.tp_new(self->cls, self->no_arguments, NULL);
    if (obj == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (PyObject_GenericSetAttr(obj, self->fields[i].name, values[i]) < 0)
            goto failed;
    if (set_tag(self, obj, tag) < 0)
        goto failed;
    if (self->is_closed)
        PyObject_GC_UnTrack(obj);
    return obj;
failed:
    Py_DECREF(obj);
    return NULL;
}

static PyObject *decode_object(Flat *self, PyObject *body, PyObject *tag)
{
    PyObject *values[FIELDS_MAX], *obj = NULL;
    Py_ssize_t found = 0;
    Cursor cursor;
    const unsigned char *at;
    if (!PyBytes_CheckExact(body))
        return NULL;
    cursor.at = (const unsigned char *)PyBytes_AS_STRING(body);
    cursor.end = cursor.at + PyBytes_GET_SIZE(body);
    at = take(&cursor, self->header_len);
    if (at == NULL || memcmp(at, self->header, self->header_len) != 0)
        return NULL;
    for (; found < self->count; found++) {
        Field *field = &self->fields[found];
        at = take(&cursor, PyBytes_GET_SIZE(field->key));
        if (at == NULL || memcmp(at, PyBytes_AS_STRING(field->key), PyBytes_GET_SIZE(field->key)))
            goto done;
        if ((values[found] = read_value(field, &cursor)) == NULL)
            goto done;
    }
    if (cursor.at == cursor.end)
        obj = make_object(self, values, tag);
done:
    while (found > 0)
        Py_DECREF(values[--found]);
    return obj;
}

static PyObject *Flat_decode(Flat *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2)
        return PyErr_Format(PyExc_TypeError, "decode(body, object_id)");
    PyObject *obj = decode_object(self, args[0], args[1]);
    return obj == NULL ? no_answer() : obj;
}

static PyObject *Flat_decode_run(Flat *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[2])
        || PyList_GET_SIZE(args[0]) != PyList_GET_SIZE(args[2]))
        return PyErr_Format(PyExc_TypeError, "decode_run(bodies: list, sender, numbers: list)");
    /* Copies: another thread may change the lists. */
    PyObject *bodies = PyList_AsTuple(args[0]), *numbers = PyList_AsTuple(args[2]);
    int failed = bodies == NULL || numbers == NULL
                 || PyTuple_GET_SIZE(bodies) != PyTuple_GET_SIZE(numbers);
    PyObject *objects = failed ? NULL : PyList_New(PyTuple_GET_SIZE(bodies));
    failed = objects == NULL;
    /* All objects are new: the collector would walk over them four times for nothing. */
    int is_collecting = PyGC_Disable();
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(bodies); i++) {
        PyObject *id = id_of(args[1], PyTuple_GET_ITEM(numbers, i)), *obj = NULL;
        if (id != NULL)
            obj = decode_object(self, PyTuple_GET_ITEM(bodies, i), id);
        Py_XDECREF(id);
        failed = obj == NULL;
        if (!failed)
            PyList_SET_ITEM(objects, i, obj);
    }
    if (is_collecting)
        PyGC_Enable();
    Py_XDECREF(bodies);
    Py_XDECREF(numbers);
    if (failed)
        Py_CLEAR(objects);
    return objects == NULL ? no_answer() : objects;
}

/* --- counting ------------------------------------------------------------------------------ */

/* By first byte, from 0xc0 to 0xdf: how many bytes its length has, and how many follow in any case
   (the value of a number, and the code of an extension with its content if that has no length). */
static const unsigned char LENGTHS[33] = "\0\0\0\0\1\2\4\1\2\4\0\0\0\0\0\0"
                                         "\0\0\0\0\0\0\0\0\0\1\2\4\2\4\2\4";
static const unsigned char FIXED[33] = "\0\0\0\0\0\0\0\1\1\1\4\10\1\2\4\10"
                                       "\1\2\4\10\2\3\5\11\21\0\0\0\0\0\0\0";

/* Adds to `count` how many elements the lists and maps from `at` on claim to have. Bytes that are
   not MessagePack end the count: decoding them says what is wrong. */
static long long count_in(const unsigned char *at, const unsigned char *end, long long count,
                          long long count_max, int depth)
{
    uint64_t pending = 1;
    while (pending > 0 && at < end && count <= count_max) {
        unsigned char first = *at++;
        uint64_t items = 0, skip = 0;
        int is_map = first <= 0x8f || first >= 0xde;
        pending--;
        if (first <= 0x7f || first >= 0xe0)
            continue;
        if (first <= 0x9f)
            items = first & 0x0f;
        else if (first <= 0xbf)
            skip = first & 0x1f;
        else {
            uint64_t length = 0;
            int length_size = LENGTHS[first - 0xc0];
            if (end - at < length_size)
                return count;
            while (length_size-- > 0)
                length = length << 8 | *at++;
            if (first >= 0xdc)
                items = length;
            else
                skip = FIXED[first - 0xc0] + length;
            int is_ext = (first >= 0xc7 && first <= 0xc9) || (first >= 0xd4 && first <= 0xd8);
            if (is_ext && at < end && *at == OBJECT_EXT) {
                if (depth == 0)
                    return count_max + 1;
                count = count_in(at + 1, skip < (uint64_t)(end - at) ? at + skip : end, count,
                                 count_max, depth - 1);
            }
        }
        if (skip > (uint64_t)(end - at))
            return count;
        at += skip;
        count += items;
        pending += is_map ? 2 * items : items;
    }
    return count;
}

static PyObject *count_values(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    long long count_max;
    (void)module;
    if (nargs != 2 || !PyBytes_CheckExact(args[0]))
        return PyErr_Format(PyExc_TypeError, "count_values(body: bytes, count_max)");
    count_max = PyLong_AsLongLong(args[1]);
    if (count_max == -1 && PyErr_Occurred())
        return NULL;
    const unsigned char *at = (const unsigned char *)PyBytes_AS_STRING(args[0]);
    return PyLong_FromLongLong(
        count_in(at, at + PyBytes_GET_SIZE(args[0]), 0, count_max, NESTING_MAX));
}

/* --- the type ------------------------------------------------------------------------------ */

/* No tp_clear: every cycle contains the class, which breaks it. */
static int Flat_traverse(Flat *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->cls);
    Py_VISIT(self->tag);
    return 0;
}

static void Flat_dealloc(Flat *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->cls);
    Py_XDECREF(self->tag);
    Py_XDECREF(self->no_arguments);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_XDECREF(self->fields[i].name);
        Py_XDECREF(self->fields[i].key);
        Py_XDECREF(self->fields[i].last);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

static int add_field(Flat *self, PyObject *name, PyObject *key, PyObject *kind)
{
    Field *field = &self->fields[self->count];
    const char *code = PyUnicode_Check(kind) ? PyUnicode_AsUTF8(kind) : NULL;
    if (code == NULL || strchr("bifsy", code[0]) == NULL || !code[0] || !PyUnicode_Check(name)
        || !PyBytes_CheckExact(key)) {
        PyErr_SetString(PyExc_ValueError, "expected a name, its bytes, and a kind such as 's?'");
        return -1;
    }
    field->kind = code[0];
    field->is_optional = code[1] == '?';
    field->key = Py_NewRef(key);
    field->name = Py_NewRef(name);
    PyUnicode_InternInPlace(&field->name);
    self->count++;
    return 0;
}

static PyObject *Flat_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *cls, *tag, *header, *fields, *name, *key, *kind;
    Py_ssize_t bytes_max;
    int is_closed;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!OSO!np", &PyType_Type, &cls, &tag, &header, &PyTuple_Type,
                          &fields, &bytes_max, &is_closed))
        return NULL;
    if (PyTuple_GET_SIZE(fields) > FIELDS_MAX || PyBytes_GET_SIZE(header) > HEADER_BYTES_MAX
        || Py_TYPE(tag)->tp_descr_get == NULL || Py_TYPE(tag)->tp_descr_set == NULL)
        return PyErr_Format(PyExc_ValueError, "expected at most %d fields, and a slot", FIELDS_MAX);
    Flat *self = (Flat *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->cls = (PyTypeObject *)Py_NewRef(cls);
    self->tag = Py_NewRef(tag);
    self->bytes_max = bytes_max;
    self->is_closed = is_closed;
    if ((self->no_arguments = PyTuple_New(0)) == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    self->header_len = PyBytes_GET_SIZE(header);
    memcpy(self->header, PyBytes_AS_STRING(header), self->header_len);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(fields); i++) {
        PyObject *field = PyTuple_GET_ITEM(fields, i);
        if (!PyTuple_Check(field) || !PyArg_ParseTuple(field, "OOO", &name, &key, &kind)
            || add_field(self, name, key, kind) < 0) {
            Py_DECREF(self);
            return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected triples");
        }
    }
    return (PyObject *)self;
}

static PyMethodDef Flat_methods[] = {
    {"encode", (PyCFunction)Flat_encode, METH_O, NULL},
    {"encode_new", (PyCFunction)(void (*)(void))Flat_encode_new, METH_FASTCALL, NULL},
    {"encode_run", (PyCFunction)(void (*)(void))Flat_encode_run, METH_FASTCALL, NULL},
    {"identify_run", (PyCFunction)(void (*)(void))Flat_identify_run, METH_FASTCALL, NULL},
    {"decode", (PyCFunction)(void (*)(void))Flat_decode, METH_FASTCALL, NULL},
    {"decode_run", (PyCFunction)(void (*)(void))Flat_decode_run, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Flat_slots[] = {
    {Py_tp_new, Flat_new},
    {Py_tp_dealloc, Flat_dealloc},
    {Py_tp_traverse, Flat_traverse},
    {Py_tp_methods, Flat_methods},
    {0, NULL},
};

static PyType_Spec Flat_spec = {
    .name = "infobus.objects._flat.Flat",
    .basicsize = sizeof(Flat),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = Flat_slots,
};

static PyMethodDef flat_functions[] = {
    {"count_values", (PyCFunction)(void (*)(void))count_values, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef flat_module = {
    PyModuleDef_HEAD_INIT, .m_name = "_flat", .m_size = 0, .m_methods = flat_functions};

PyMODINIT_FUNC PyInit__flat(void)
{
    PyObject *module = PyModule_Create(&flat_module);
    PyObject *type = module == NULL ? NULL : PyType_FromSpec(&Flat_spec);
    if (type == NULL || PyModule_AddObjectRef(module, "Flat", type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
