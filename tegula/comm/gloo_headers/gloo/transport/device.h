// Stands in for gloo's header, which the libtorch wheel does not ship.
#pragma once

namespace gloo::transport {
class Device;
}
