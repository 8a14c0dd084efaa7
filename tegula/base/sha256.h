// SHA-256 and the keyed hash HMAC over it, by which two processes prove to each other that they
// know the same secret without telling it. Bytes are in strings; a digest has 32.
#pragma once

#include <string>
#include <string_view>

namespace tegula::inner {

// FIPS 180-4.
std::string sha256(std::string_view bytes);
// RFC 2104, RFC 4231: nobody without the key can make it, nor learn the key from it.
std::string hmac_sha256(std::string_view key, std::string_view message);
// Takes the same time wherever texts of one length differ.
bool are_same_secrets(std::string_view a, std::string_view b);

}  // namespace tegula::inner
