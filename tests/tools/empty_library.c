// Something to preload.
int grape_test_empty_library(void) { return 1; }
