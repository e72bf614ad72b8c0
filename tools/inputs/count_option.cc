#include "tools/inputs/count_option.h"

#include <fmt/format.h>

#include <limits>

#include "tools/inputs/filter.h"
#include "tools/text/escape.h"
#include "tools/text/failure.h"

namespace grape::tools {

CLI::Option* add_count(CLI::App& command, const std::string& name, std::size_t& count, const std::string& description) {
  const auto parse = [name, &count](const std::string& text) {
    std::uint64_t number = 0;
    if (!parse_number(text, number)) {
      throw Failure(fmt::format("{} wants a number from 0 (all) to {}, not {}", name,
                                std::numeric_limits<std::size_t>::max(), escape_text(text)));
    }
    count = number;
  };
  CLI::Option* option = command.add_option_function<std::string>(name, parse, description)->type_name("NUMBER");
  return count == 0 ? option : option->default_str(std::to_string(count));
}

}  // namespace grape::tools
