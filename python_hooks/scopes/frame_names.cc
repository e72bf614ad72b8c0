#include "python_hooks/scopes/frame_names.h"

#include <new>

#include "python_hooks/interpreter/texts.h"
#include "python_hooks/scopes/python_thread.h"
#include "shim/record/thread_log.h"

namespace grape::python::scopes {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Code that a user has not written and would not look for a fault in.
bool is_torch(std::string_view file) {
  return contains(file, "-packages/torch/");  // site-packages, dist-packages
}
bool is_standard(std::string_view file) {
  if (file.substr(0, 8) == "<frozen ") return true;
  return contains(file, "/lib/python3") && !contains(file, "-packages/");
}

}  // namespace

void FrameNames::add_code(std::uint32_t code, std::string_view file, std::string_view function) noexcept {
  try {
    if (codes_.size() < code) codes_.resize(code);
    codes_[code - 1] = {std::string(file), std::string(function)};
  } catch (const std::bad_alloc&) {
    return;
  }
}

void FrameNames::add_frame(std::uint32_t frame, std::uint32_t parent, std::uint32_t code, int line) noexcept {
  try {
    if (frames_.size() < frame) frames_.resize(frame);
    frames_[frame - 1] = {parent, code, line};
  } catch (const std::bad_alloc&) {
    return;
  }
}

const FrameNames::Frame* FrameNames::frame_of(std::uint32_t id) const noexcept {
  return id != 0 && id <= frames_.size() && frames_[id - 1].code != 0 ? &frames_[id - 1] : nullptr;
}

const FrameNames::Code* FrameNames::code_of(const Frame& frame) const noexcept {
  return frame.code <= codes_.size() && !codes_[frame.code - 1].file.empty() ? &codes_[frame.code - 1] : nullptr;
}

std::string FrameNames::text_of(const Frame& frame) const {
  const Code* code = code_of(frame);
  if (code == nullptr) return {};
  return std::string(last_two_parts(code->file)) + ":" + std::to_string(frame.line) + " in " + code->function;
}

std::string FrameNames::place(std::uint32_t id) const {
  const Frame* innermost = frame_of(id);
  if (innermost == nullptr) return {};
  const Frame* torch = nullptr;  // the innermost of PyTorch's own
  for (const Frame* frame = innermost; frame != nullptr; frame = frame_of(frame->parent)) {
    const Code* code = code_of(*frame);
    if (code == nullptr) break;
    if (is_torch(code->file)) {
      if (torch == nullptr) torch = frame;
    } else if (!is_standard(code->file)) {
      return text_of(*frame) + (torch != nullptr ? ", by " + text_of(*torch) : "");
    }
  }
  return text_of(*innermost);
}

std::string place_of_frame(std::uint32_t frame) noexcept {
  const record::ThreadLog* log = record::t_thread.log;
  const auto* thread = log != nullptr ? static_cast<const PythonThread*>(log->python.data) : nullptr;
  const FrameNames* names = thread != nullptr ? thread->stacks.names() : nullptr;
  if (names == nullptr) return {};
  try {
    return names->place(frame);
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace grape::python::scopes
