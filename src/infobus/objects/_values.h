/* Encode and decode the single values of flat objects as MessagePack. See _flat.c. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define REPEATED_BYTES_MAX 64

typedef struct {
    PyObject *name;      /* interned */
    PyObject *key;       /* bytes: the name as MessagePack */
    PyObject *last;      /* the last string read, if it is short and ASCII, or NULL */
    char kind;           /* b(ool), i(nt), f(loat), s(tr), y (bytes) */
    char is_optional;
} Field;

/* --- writing ------------------------------------------------------------------------------ */

typedef struct {
    PyObject *value; /* borrowed */
    const char *data;
    Py_ssize_t len;
    int64_t number;
} Part;

static Py_ssize_t int_size(int64_t n)
{
    if (n >= 0)
        return n < 0x80 ? 1 : n < 0x100 ? 2 : n < 0x10000 ? 3 : n < 0x100000000 ? 5 : 9;
    return n >= -0x20 ? 1 : n >= -0x80 ? 2 : n >= -0x8000 ? 3 : n >= -0x80000000LL ? 5 : 9;
}

/* Returns how many bytes the value of a field takes, or -1 if it does not match the type. */
static Py_ssize_t measure(const Field *field, Part *part)
{
    PyObject *value = part->value;
    int overflow;
    if (value == Py_None)
        return field->is_optional ? 1 : -1;
    switch (field->kind) {
    case 'b':
        return PyBool_Check(value) ? 1 : -1;
    case 'i':
        if (!PyLong_CheckExact(value))
            return -1;
        part->number = PyLong_AsLongLongAndOverflow(value, &overflow);
        return overflow ? -1 : int_size(part->number);
    case 'f':
        return PyFloat_CheckExact(value) ? 9 : -1;
    case 's':
        if (!PyUnicode_CheckExact(value))
            return -1;
        part->data = PyUnicode_AsUTF8AndSize(value, &part->len);
        if (part->data == NULL || part->len > UINT32_MAX)
            return -1;
        if (part->len < 32)
            return part->len + 1;
        return part->len + (part->len < 0x100 ? 2 : part->len < 0x10000 ? 3 : 5);
    default:
        if (!PyBytes_CheckExact(value))
            return -1;
        part->data = PyBytes_AS_STRING(value);
        part->len = PyBytes_GET_SIZE(value);
        if (part->len > UINT32_MAX)
            return -1;
        return part->len + (part->len < 0x100 ? 2 : part->len < 0x10000 ? 3 : 5);
    }
}

/* Writes a first byte and, after it, a number of `size` bytes, big-endian. */
static unsigned char *put(unsigned char *at, unsigned char first, uint64_t n, int size)
{
    *at++ = first;
    while (size-- > 0)
        *at++ = (unsigned char)(n >> (8 * size));
    return at;
}

static unsigned char *put_int(unsigned char *at, int64_t n)
{
    uint64_t bits = (uint64_t)n;
    switch (int_size(n)) {
    case 1:
        return put(at, (unsigned char)bits, 0, 0);
    case 2:
        return put(at, n < 0 ? 0xd0 : 0xcc, bits, 1);
    case 3:
        return put(at, n < 0 ? 0xd1 : 0xcd, bits, 2);
    case 5:
        return put(at, n < 0 ? 0xd2 : 0xce, bits, 4);
    default:
        return put(at, n < 0 ? 0xd3 : 0xcf, bits, 8);
    }
}

static unsigned char *put_value(unsigned char *at, const Field *field, const Part *part)
{
    uint64_t len = (uint64_t)part->len, bits;
    double number;
    if (part->value == Py_None)
        return put(at, 0xc0, 0, 0);
    switch (field->kind) {
    case 'b':
        return put(at, part->value == Py_True ? 0xc3 : 0xc2, 0, 0);
    case 'i':
        return put_int(at, part->number);
    case 'f':
        number = PyFloat_AS_DOUBLE(part->value);
        memcpy(&bits, &number, 8);
        return put(at, 0xcb, bits, 8);
    case 's':
        if (len < 32)
            at = put(at, (unsigned char)(0xa0 | len), 0, 0);
        else
            at = len < 0x100     ? put(at, 0xd9, len, 1)
                 : len < 0x10000 ? put(at, 0xda, len, 2)
                                 : put(at, 0xdb, len, 4);
        break;
    default:
        at = len < 0x100     ? put(at, 0xc4, len, 1)
             : len < 0x10000 ? put(at, 0xc5, len, 2)
                             : put(at, 0xc6, len, 4);
    }
    memcpy(at, part->data, part->len);
    return at + part->len;
}

/* --- reading ------------------------------------------------------------------------------ */

typedef struct {
    const unsigned char *at, *end;
} Cursor;

/* Returns the next `size` bytes and moves past them, or NULL if there are fewer. */
static const unsigned char *take(Cursor *cursor, uint64_t size)
{
    const unsigned char *at = cursor->at;
    if ((uint64_t)(cursor->end - at) < size)
        return NULL;
    cursor->at += size;
    return at;
}

static int take_number(Cursor *cursor, int size, uint64_t *n)
{
    const unsigned char *at = take(cursor, size);
    if (at == NULL)
        return 0;
    for (*n = 0; size-- > 0;)
        *n = *n << 8 | *at++;
    return 1;
}

static PyObject *read_int(Cursor *cursor, unsigned char first)
{
    uint64_t n;
    if (first < 0x80 || first >= 0xe0)
        return PyLong_FromLong((signed char)first);
    if (first < 0xcc || first > 0xd3 || !take_number(cursor, 1 << (first & 3), &n))
        return NULL;
    switch (first) {
    case 0xcf:
        return n > INT64_MAX ? NULL : PyLong_FromUnsignedLongLong(n);
    case 0xd0:
        return PyLong_FromLong((int8_t)n);
    case 0xd1:
        return PyLong_FromLong((int16_t)n);
    case 0xd2:
        return PyLong_FromLong((int32_t)n);
    case 0xd3:
        return PyLong_FromLongLong((int64_t)n);
    default:
        return PyLong_FromUnsignedLongLong(n);
    }
}

/* Successive events often have the same venue, currency or unit, so the last string is reused. */
static PyObject *read_text(Field *field, const char *at, Py_ssize_t n)
{
    PyObject *text = field->last;
    if (text != NULL && PyUnicode_GET_LENGTH(text) == n
        && memcmp(PyUnicode_1BYTE_DATA(text), at, n) == 0)
        return Py_NewRef(text);
    text = PyUnicode_DecodeUTF8(at, n, NULL);
    if (text != NULL && n <= REPEATED_BYTES_MAX && PyUnicode_IS_ASCII(text))
        Py_XSETREF(field->last, Py_NewRef(text));
    return text;
}

/* Returns NULL, perhaps with an error set, if the bytes do not match the type. */
static PyObject *read_value(Field *field, Cursor *cursor)
{
    const unsigned char *at = take(cursor, 1);
    unsigned char first;
    uint64_t n;
    double number;
    if (at == NULL)
        return NULL;
    first = *at;
    if (first == 0xc0 && field->is_optional)
        return Py_NewRef(Py_None);
    switch (field->kind) {
    case 'b':
        return first == 0xc3 ? Py_NewRef(Py_True) : first == 0xc2 ? Py_NewRef(Py_False) : NULL;
    case 'i':
        return read_int(cursor, first);
    case 'f':
        if (first != 0xcb || !take_number(cursor, 8, &n))
            return NULL;
        memcpy(&number, &n, 8);
        return PyFloat_FromDouble(number);
    case 's':
        if ((first & 0xe0) == 0xa0)
            n = first & 0x1f;
        else if (first < 0xd9 || first > 0xdb || !take_number(cursor, 1 << (first - 0xd9), &n))
            return NULL;
        at = take(cursor, n);
        return at == NULL ? NULL : read_text(field, (const char *)at, (Py_ssize_t)n);
    default:
        if (first < 0xc4 || first > 0xc6 || !take_number(cursor, 1 << (first - 0xc4), &n))
            return NULL;
        at = take(cursor, n);
        return at == NULL ? NULL : PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)n);
    }
}
