// Where the flight recorder (shm/flight_ring.h) is written when something went wrong.
#pragma once

#include "tegula/comm/shm/board.h"

namespace tegula::inner::comm {

// Appends the last calls of the ranks of this host to the file that TEGULA_RECORDER names, or
// prints them to the standard error if it names none; TEGULA_RECORDER=off writes nothing.
void write_flight_report(const shm::Board& board);

}  // namespace tegula::inner::comm
