// Preloaded: an interpreter of a version that nobody knows, where the interpreter is a library.
__attribute__((visibility("default"))) const char* Py_GetVersion(void);
const char* Py_GetVersion(void) { return "3.99.0 (main, Jan  1 2040, 00:00:00) [GCC]"; }
