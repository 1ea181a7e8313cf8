/* The compiled core: rounds as programs, scripts, and the marks of partitioned sends. */

#include "core.h"

#ifdef Py_GIL_DISABLED
#error "the compiled core relies on the global interpreter lock; the Python one is used instead"
#endif

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "onesided.collectives._core", .m_size = -1,
};

PyMODINIT_FUNC PyInit__core(void)
{
    static const struct { const char *name; long value; } shared[] = {
        {"COPY", COPY}, {"BOX", BOX}, {"GATHER", GATHER}, {"RAISE", RAISE}, {"AWAIT", AWAIT},
        {"CALL", CALL}, {"REDUCE", REDUCE}, {"INACTIVE", INACTIVE}, {"ACTIVE", ACTIVE}, {"BROKEN", BROKEN},
        {"FREED", FREED}, {"CREDIT", CREDIT}, {"HEAD", HEAD}, {"TOLD", TOLD}, {"TAIL", TAIL},
        {"SERVES", SERVES}, {"LATER", LATER}, {"BLOCKS", BLOCKS}, {"ONCE", ONCE},
        {"LOCAL_CALLS", LOCAL_CALLS}, {"ALL_CALLS", ALL_CALLS},
        {"ENTRIES", ENTRIES}, {"ROOM", ROOM}, {"KERNEL", KERNEL}, {"SCALE", SCALE},
        {"WORK", WORK},
    };
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    int failed = 0;
    for (size_t i = 0; !failed && i < sizeof shared / sizeof *shared; i++)
        failed = PyModule_AddIntConstant(module, shared[i].name, shared[i].value) < 0;
    if (failed || add_folds(module) < 0 || add_rounds(module) < 0 || add_marks(module) < 0 ||
        add_scripts(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
