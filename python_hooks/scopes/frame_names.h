// The code and line of each frame id of a thread, so that messages can name a place without a trace. Kept in mode
// replay only. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace grape::python::scopes {

class FrameNames {
 public:
  // As the definitions are written: ids count from 1. Without memory the frame has no name.
  void add_code(std::uint32_t code, std::string_view file, std::string_view function) noexcept;
  void add_frame(std::uint32_t frame, std::uint32_t parent, std::uint32_t code, int line) noexcept;

  // "models/net.py:12 in Net.forward": the innermost frame outside of the standard library and of PyTorch. If it called
  // into PyTorch's Python code, the innermost frame of that follows. Empty: not known. May throw std::bad_alloc.
  std::string place(std::uint32_t frame) const;

 private:
  struct Code {
    std::string file, function;
  };
  struct Frame {
    std::uint32_t parent = 0, code = 0;
    int line = 0;
  };
  const Frame* frame_of(std::uint32_t id) const noexcept;
  const Code* code_of(const Frame& frame) const noexcept;
  std::string text_of(const Frame& frame) const;

  std::vector<Code> codes_;
  std::vector<Frame> frames_;
};

// FrameNames::place() of a frame id in the calling thread's log; empty: not known. With or without the GIL.
std::string place_of_frame(std::uint32_t frame) noexcept;

}  // namespace grape::python::scopes
