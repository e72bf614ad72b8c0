// Sends new node parameters of an exec to the device before its next launch, on a stream of our own. Otherwise the
// launch sends them and waits: a tenth of a millisecond for hundreds of nodes (H200). Calls the driver's real
// functions. One thread at a time per object; the exec's context is current.
#pragma once

#include <cuda.h>

namespace grape::graphs {

class UploadAhead {
 public:
  UploadAhead() = default;
  ~UploadAhead();
  UploadAhead(const UploadAhead&) = delete;
  UploadAhead& operator=(const UploadAhead&) = delete;

  // Sends the parameters, or leaves them to the launch.
  void begin(CUgraphExec exec) noexcept;
  // Before a launch into `stream`, which must not be under capture: it comes after the upload. That is not left to the
  // driver, whose documentation orders uploads behind launches but says nothing of launches behind uploads.
  void order(CUstream stream) noexcept;
  // The context is gone: forget the handles without a driver call.
  void abandon() noexcept { event_ = nullptr; }

 private:
  CUevent event_ = nullptr;  // behind the upload
  bool pending_ = false;
};

// The context is gone, and its stream with it.
void forget_upload_stream(CUcontext context) noexcept;

}  // namespace grape::graphs
