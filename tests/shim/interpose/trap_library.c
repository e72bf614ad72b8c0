// Names that begin like the driver's, in a library that is not the driver.
int cudnnCreate(void) { return 1; }
int cublasCreate(void) { return 2; }
int cudaMalloc(void) { return 3; }
int cufftPlan1d(void) { return 4; }
int curandCreate(void) { return 5; }
int cuLaunchKernel(void) { return 77; }
