// libgrape.so is made of its rooms; this file only gives the linker something to start from.
namespace grape {
extern const char kVersion[];
const char kVersion[] = GRAPE_VERSION;
}  // namespace grape
