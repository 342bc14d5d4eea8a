#include "analysis/report/json.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace paceline {

std::string ShortestNumber(double value) {
  for (int digits : {6, 9, 12, 15, 16}) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    if (std::strtod(text.c_str(), nullptr) == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

std::string ValidUtf8(absl::string_view text) {
  constexpr char kReplacement[] = "\xEF\xBF\xBD";
  std::string valid;
  for (size_t i = 0; i < text.size();) {
    const unsigned char lead = text[i];
    size_t length = 1;
    uint32_t code = lead;
    uint32_t least = 0;
    if (lead >= 0xF0 && lead < 0xF8) {
      length = 4, code = lead & 0x07, least = 0x10000;
    } else if (lead >= 0xE0) {
      length = 3, code = lead & 0x0F, least = 0x800;
    } else if (lead >= 0xC0) {
      length = 2, code = lead & 0x1F, least = 0x80;
    }
    bool good = lead < 0x80 || (lead >= 0xC0 && lead < 0xF8);
    for (size_t k = 1; good && k < length; ++k) {
      good = i + k < text.size() && (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
      if (good) code = (code << 6) | (text[i + k] & 0x3F);
    }
    good = good && code >= least && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    const bool control = lead < 0x20 && lead != '\t' && lead != '\n' && lead != '\r';
    if (!good || control || lead == 0x7F) {
      valid += kReplacement;
      ++i;
    } else {
      valid.append(text.data() + i, length);
      i += length;
    }
  }
  return valid;
}

void JsonWriter::Value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (has_members_.back()) text_ += ',';
  has_members_.back() = true;
}

void JsonWriter::Quote(absl::string_view value) {
  text_ += '"';
  for (const char c : ValidUtf8(value)) {
    switch (c) {
      case '"':
        text_ += "\\\"";
        break;
      case '\\':
        text_ += "\\\\";
        break;
      case '\n':
        text_ += "\\n";
        break;
      case '\r':
        text_ += "\\r";
        break;
      case '\t':
        text_ += "\\t";
        break;
      default:
        text_ += c;
    }
  }
  text_ += '"';
}

JsonWriter& JsonWriter::BeginObject() {
  Value();
  text_ += '{';
  has_members_.push_back(false);
  return *this;
}

JsonWriter& JsonWriter::EndObject() {
  text_ += '}';
  has_members_.pop_back();
  return *this;
}

JsonWriter& JsonWriter::BeginArray() {
  Value();
  text_ += '[';
  has_members_.push_back(false);
  return *this;
}

JsonWriter& JsonWriter::EndArray() {
  text_ += ']';
  has_members_.pop_back();
  return *this;
}

JsonWriter& JsonWriter::Key(absl::string_view key) {
  if (has_members_.back()) text_ += ',';
  has_members_.back() = true;
  Quote(key);
  text_ += ':';
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::String(absl::string_view value) {
  Value();
  Quote(value);
  return *this;
}

JsonWriter& JsonWriter::Number(double value) {
  Value();
  text_ += std::isfinite(value) ? ShortestNumber(value) : "null";
  return *this;
}

JsonWriter& JsonWriter::Bool(bool value) {
  Value();
  text_ += value ? "true" : "false";
  return *this;
}

}  // namespace paceline
