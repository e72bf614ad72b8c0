int cuInit(unsigned flags);
int call_init(void) { return cuInit(0); }
