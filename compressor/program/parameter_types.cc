#include "compressor/program/parameter_types.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

namespace grape::program {
namespace {

constexpr std::size_t kLongestName = 8 * 1024;

bool opens(char c) { return c == '(' || c == '<' || c == '{' || c == '['; }
bool closes(char c) { return c == ')' || c == '>' || c == '}' || c == ']'; }

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool begins(std::string_view text, std::string_view part) { return text.substr(0, part.size()) == part; }

// "void f<int>(A, B<C, D>)": what is between the last brackets. Empty if the text is not of that form.
std::string_view parameter_list(std::string_view text) {
  // Brackets that are no brackets.
  if (has(text, "operator<") || has(text, "operator>") || has(text, "->") || has(text, " < ") || has(text, " > ")) {
    return {};
  }
  if (text.empty() || text.back() != ')') return {};
  int depth = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    depth += closes(text[i]) ? 1 : opens(text[i]) ? -1 : 0;
    if (depth == 0) return text.substr(i + 1, text.size() - i - 2);
  }
  return {};
}

// By their source: aten/src/ATen/cuda/detail/OffsetCalculator.cuh, aten/src/ATen/native/cuda/MemoryAccess.cuh.
bool is_empty_class(std::string_view text) {
  return begins(text, "TrivialOffsetCalculator<") || text == "at::native::memory::LoadWithoutCast" ||
         text == "at::native::memory::StoreWithoutCast";
}

ParameterType type_of(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  if (text.empty()) return ParameterType::kOther;
  if (is_empty_class(text)) return ParameterType::kEmpty;
  // nvcc wraps a lambda expression that is marked __device__ or __host__ __device__.
  if (text.back() == '}' || begins(text, "__nv_dl_wrapper_t<") || begins(text, "__nv_hdl_wrapper_t<")) {
    return ParameterType::kClosure;
  }
  if (text.back() == '*') return ParameterType::kPointer;
  // Complex numbers are numbers.
  if (text.back() == '>' && !has(text.substr(0, text.find('<')), "complex")) return ParameterType::kTemplate;
  return ParameterType::kOther;
}

std::vector<ParameterType> types_in(std::string_view list) {
  std::vector<ParameterType> types;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    depth += opens(list[i]) ? 1 : closes(list[i]) ? -1 : 0;
    if (list[i] != ',' || depth != 0) continue;
    types.push_back(type_of(list.substr(begin, i - begin)));
    begin = i + 1;
  }
  types.push_back(type_of(list.substr(begin)));
  return types;
}

}  // namespace

std::vector<ParameterType> parameter_types(const std::string& mangled) {
  if (mangled.size() > kLongestName || mangled.compare(0, 2, "_Z") != 0) return {};
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  if (text == nullptr) return {};
  std::vector<ParameterType> types;
  const std::string_view list = parameter_list(text);
  if (!list.empty()) types = types_in(list);
  std::free(text);
  return types;
}

}  // namespace grape::program
