// Writes JSON text.
//
//   JsonWriter json;
//   json.BeginObject().Key("name").String("a \"b\"").Key("seconds").Number(0.5).EndObject();
//   json.text();   // {"name":"a \"b\"","seconds":0.5}
//
// Numbers that are not finite become null. Bytes that are not UTF-8 become U+FFFD. Not thread-safe.
#ifndef PACELINE_ANALYSIS_REPORT_JSON_H_
#define PACELINE_ANALYSIS_REPORT_JSON_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace paceline {

// The shortest decimal form that reads back as exactly `value`, which is finite.
std::string ShortestNumber(double value);

// `text` with every byte sequence that is not UTF-8, and every control character but tab, newline
// and carriage return, replaced by U+FFFD.
std::string ValidUtf8(absl::string_view text);

class JsonWriter {
 public:
  JsonWriter& BeginObject();
  JsonWriter& EndObject();
  JsonWriter& BeginArray();
  JsonWriter& EndArray();
  JsonWriter& Key(absl::string_view key);
  JsonWriter& String(absl::string_view value);
  JsonWriter& Number(double value);
  JsonWriter& Bool(bool value);

  const std::string& text() const { return text_; }

 private:
  void Value();
  void Quote(absl::string_view value);

  std::string text_;
  std::vector<bool> has_members_ = {false};
  bool after_key_ = false;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_REPORT_JSON_H_
