// The first pass over a region's events. It finds work that no program can hold, and events and streams that reach
// beyond the call. For region_record.cc only.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compressor/refusal/refusal.h"
#include "shim/observation/region_record.h"
#include "shim/record/graph.h"

namespace grape::observation {

class RegionScreen {
 public:
  struct Found {
    refusal::Refusal refusal;
    std::uint32_t frame = 0;
  };

  // `events` must outlive this object.
  explicit RegionScreen(const RegionEvents& events) : events_(events), context_(events.began_context) {}

  void add(const trace::EventView& event);
  // What matters most of all that was found. What lasts comes before what passes.
  Found finish();

  // Was code loaded? It stays for the replays; but what else happens in such calls may happen once only.
  bool loaded() const { return loaded_; }
  // Did it change what is there for the calls that follow: memory of the driver, streams, as libraries do once? Its
  // work can be that of a program, but the program is known to do without only if another call does.
  const Found& set_up() const { return set_up_; }

  // After finish() that refused nothing:
  const record::StreamModes& modes() const { return modes_; }
  std::uint64_t serial(std::size_t block_event) const {
    return block_event < serials_.size() ? serials_[block_event] : 0;
  }
  // Ascending by serial, each once.
  const std::vector<program::LiveHandle>& waited_events() const { return waited_; }
  const std::vector<program::LiveHandle>& recorded_events() const { return trailing_; }
  // Memory of a library's that its kernels were handed; each once.
  const std::vector<program::HostWord>& host_words() const { return host_words_; }
  // On which events were recorded, or which waited for one; each once.
  const std::vector<std::uint64_t>& event_streams() const { return event_streams_; }
  // Does the copy with this sequence number bring data of the host's, which its note has?
  bool brings_host_data(std::uint64_t sequence) const { return host_copies_.count(sequence) != 0; }
  // That the host waited for; ascending.
  const std::vector<std::uint64_t>& waited_streams() const { return waited_streams_; }
  // 0: not known, or a default stream.
  std::uint64_t stream_serial(std::uint64_t stream) const;

 private:
  template <std::size_t count, typename... Parts>
  void refuse(refusal::Form<count> form, std::uint32_t frame, const Parts&... parts) {
    Found& found = refusal::is_passing(form.id) ? passing_ : lasting_;
    if (!found.refusal) found = {refusal::make(form, parts...), frame};
  }
  void note_set_up(refusal::Form<1> form, const record::CallView& call, const std::string& name);
  void add_launch(const trace::LaunchView& launch);
  void check_attribute(const trace::LaunchView& launch, std::uint32_t index);
  void check_host_memory(const trace::LaunchView& launch);
  bool is_of_library(std::uint64_t word);
  bool is_of_host(std::uint64_t address) const;
  void add_call(const record::CallView& call);
  void add_copy(const record::ApiLayout& layout, const record::CallView& call, const std::string& name);
  void add_host_copy(const record::ApiLayout& layout, const record::CallView& call, const std::string& name);
  void take_due_data();
  void add_wait(const record::ApiLayout& layout, const record::CallView& call, const std::string& name);
  void note_wait(std::uint64_t stream);
  void add_host_read(const record::ApiLayout& layout, const record::CallView& call, const std::string& name);
  bool on_device(std::uint64_t address) const;
  void check_device_memory(std::uint64_t address, std::uint32_t frame);
  void add_event_call(const record::ApiLayout& layout, const record::CallView& call, const std::string& name);
  void wait_from_before(std::uint64_t event, const record::CallView& call, const std::string& name);
  void note_stream(std::uint64_t stream, std::uint32_t frame);
  void check_default_stream(std::uint64_t stream, std::uint32_t frame);
  void find_streams();
  void find_trailing_events();

  const RegionEvents& events_;
  std::uint64_t context_;  // that is current
  bool attached_ = false;  // the events are an attached thread's
  Found lasting_, passing_, set_up_;
  bool loaded_ = false;
  std::size_t reads_ = 0, waited_for_ = 0, values_ = 0;  // by the host: begun, waited for, known by value
  std::uint32_t read_frame_ = 0;
  Found data_due_;                                 // of the last event, if that was a copy from the host
  std::uint64_t host_bytes_ = 0;                   // that copies brought
  std::unordered_set<std::uint64_t> host_copies_;  // by sequence number
  std::unordered_set<std::uint64_t> fed_;          // streams with a copy from the host that was not waited for
  std::vector<std::uint64_t> waited_streams_;
  std::vector<program::HostWord> host_words_;
  std::vector<program::LiveBlock> born_;
  std::vector<std::uint64_t> serials_;                         // per block event
  std::unordered_map<std::uint64_t, std::uint32_t> recorded_;  // events recorded and not destroyed, with the frame
  std::unordered_set<std::uint64_t> made_;                     // events made inside and not destroyed
  std::unordered_set<std::uint64_t> streams_;                  // that work or events were put on
  std::unordered_map<std::uint64_t, std::uint64_t> stream_serials_;  // of those
  std::vector<std::uint64_t> event_streams_;
  std::vector<program::LiveHandle> waited_, trailing_;
  record::StreamModes modes_;
};

}  // namespace grape::observation
