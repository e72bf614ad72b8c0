extern "C" int grape_bench_main(int argc, char** argv);

int main(int argc, char** argv) { return grape_bench_main(argc, argv); }
